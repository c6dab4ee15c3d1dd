"""What the job makes of Spark's reports and of Java's exceptions."""

from __future__ import annotations

import pytest
from headrace_lake.causes import kafka_is_away, root_cause
from headrace_lake.progress import behind


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"latestOffset": {"t": {"0": 10}}, "endOffset": {"t": {"0": 7}}}, {("t", 0): 3}),
        ({"latestOffset": '{"t":{"0":10}}', "endOffset": '{"t":{"0":10}}'}, {("t", 0): 0}),
        ({"latestOffset": {"t": {"0": 10, "1": 5}}, "endOffset": {"t": {"0": 12}}}, {("t", 0): 0, ("t", 1): 0}),
        ({"latestOffset": "null", "endOffset": "null"}, {}),  # the first report after a batch that was landed before
        ({"latestOffset": None, "endOffset": None}, {}),
        ({"latestOffset": "", "endOffset": ""}, {}),  # of a query that was stopped
        ({}, {}),
    ],
)
def test_lag_comes_from_whatever_the_report_holds(source: dict, expected: dict) -> None:
    assert behind(source) == expected


class _Java:
    def __init__(self, text: str, cause: _Java | None = None) -> None:
        self._text, self._cause = text, cause

    def toString(self) -> str:
        return self._text

    def getCause(self) -> _Java | None:
        return self._cause


class _Error(Exception):
    def __init__(self, java: _Java) -> None:
        super().__init__("An error occurred while calling o1.save: " + "\n\tat x" * 200)
        self.java_exception = java


def test_the_innermost_exception_is_the_reason_in_one_line() -> None:
    inner = _Java("org.apache.spark.SparkException: [X.Y] it is\nbroken. SQLSTATE: 42000\n\nstack")
    assert (
        root_cause(_Error(_Java("java.lang.RuntimeException: outer", inner))) == "SparkException: [X.Y] it is broken."
    )
    assert root_cause(ValueError("plain\ntext")) == "ValueError: plain text"


@pytest.mark.parametrize(
    ("cause", "away"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Call(...) timed out", True),
        ("java.net.ConnectException: refused", True),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", False),
        ("org.apache.spark.SparkException: Job aborted", False),
    ],
)
def test_kafka_away_is_told_from_kafka_refuses(cause: str, away: bool) -> None:
    assert kafka_is_away(cause) is away
