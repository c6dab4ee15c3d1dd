"""How the job reads Spark's reports and Java's exceptions."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_lake.kafka import gaps
from headrace_lake.kafka.checkpoint import Checkpoint, CheckpointMarker
from headrace_lake.kafka.claim import Claim
from headrace_lake.kafka.source import TopicInfo
from headrace_lake.kafka.start import Coverage, _faults
from headrace_lake.landing.recovered import check_rows
from headrace_lake.spark import causes
from headrace_lake.spark.causes import kafka_is_away, root_cause
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.properties import BEGUN, RETAINED_FROM
from headrace_lake.upkeep.progress import reached
from structlog.testing import CapturingLogger


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"t": {"0": 7, "1": 0}}, {("t", 0): 7, ("t", 1): 0}),
        ('{"t":{"0":10}}', {("t", 0): 10}),
        ("null", {}),  # the first report after a batch that was landed before
        (None, {}),
        ("", {}),  # of a query that was stopped
        ("None", {}),  # of a batch that a new driver lands again
    ],
)
def test_where_a_batch_ends_comes_from_whatever_the_report_holds(
    end: object, expected: dict[tuple[str, int], int]
) -> None:
    assert reached({"endOffset": end}) == expected
    assert reached({}) == {}


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
        ("java.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 120000 milliseconds", True),
        (
            "java.net.ConnectException: Call From a to hdfs:8020 failed on connection exception: Connection refused",
            False,
        ),
        ("java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]", False),
        ("org.apache.spark.rpc.RpcTimeoutException: Futures timed out", False),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", False),
        ("org.apache.spark.SparkException: Job aborted", False),
        (
            "KafkaException: Failed to create new KafkaAdminClient | org.apache.kafka.common.config.ConfigException: No"
            " resolvable bootstrap urls given in bootstrap.servers",
            True,
        ),
        ("org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: a", False),
        ("KafkaException: x | javax.security.auth.login.LoginException: The response code 401", True),
    ],
)
def test_kafka_away_is_told_from_kafka_refuses(cause: str, away: bool) -> None:
    assert kafka_is_away(cause) is away


@pytest.mark.parametrize(
    ("cause", "full"),
    [
        ("java.io.IOException: No space left on device", True),
        ("SparkException: Job aborted | java.io.IOException: Disk quota exceeded", True),
        ("java.io.IOException: Input/output error", False),
    ],
)
def test_a_full_disk_names_its_folder(cause: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    room = {"/lake": 5_000_000, "/checkpoint": 17}

    def usage(path: str) -> SimpleNamespace:
        if path not in room:
            raise FileNotFoundError(path)
        return SimpleNamespace(free=room[path])

    monkeypatch.setattr(causes, "disk_usage", usage)
    folders = {"LAKE__PATH": "/lake", "LAKE__CHECKPOINT": "/checkpoint", "Spark's local folder": "/gone"}
    said = causes.full_disk(cause, folders)
    assert (said is not None) is full
    assert not full or "LAKE__CHECKPOINT (/checkpoint) has 17 bytes left" in str(said)


def summed(
    partition: int, start: int, end: int, length: int, rows: int, number: int | None, reason: str = ""
) -> dict[str, Any]:
    place = {"topic": "t", "topic_id": "id", "partition": partition, "reason": reason}
    return {**place, "start": start, "end": end, "length": length, "rows": rows, "number": number}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([summed(0, 5, 50, 45, 3, 3), summed(1, 0, 0, 0, 0, 0)], []),
        ([summed(0, 0, 50, 40, 3, 3), summed(0, 20, 30, 10, 1, None, "retention")], []),
        ([summed(0, 0, 50, 40, 3, 3)], ["t/0: 10 offsets are missing between 0 and 50"]),
        ([summed(0, 0, 50, 60, 3, 3)], ["t/0: ranges overlap between 0 and 50"]),
        ([summed(0, 0, 50, 50, 3, 7)], ["it has 3 rows, and the last one has the number 7"]),
        ([summed(0, 0, 50, 50, 3, 3), summed(1, 0, 9, 9, 1, 4)], []),
        ([], []),
    ],
)
def test_batches_must_agree_with_itself(rows: list[dict[str, Any]], said: list[str]) -> None:
    assert list(_faults(rows)) == said  # type: ignore[arg-type]
    if said:
        with pytest.raises(HaltError, match=r"were deleted or doubled: .*RESTORE TABLE"):
            Coverage({}, {}, frozenset(), faults=tuple(said)).check()


class _Checkpoint:
    """A checkpoint that begins at 5, whose batches end at 10, 20 and 30."""

    path = "/checkpoint"

    def __init__(self, batches: int, committed: int) -> None:
        self._batches = batches
        self._committed = committed

    def committed(self, batch: int) -> bool:
        return batch < self._committed

    def last_batch(self) -> int:
        return self._batches - 1

    def ends(self, batch: int) -> dict[tuple[str, int], int]:
        assert self._batches, "nothing is written before the first batch is planned"
        return {("t", 0): 10 * (batch + 1) or 5}


@pytest.mark.parametrize(
    ("begun", "committed", "landed", "ends", "stops"),
    [
        (0, 0, 0, {}, False),  # stopped before the first batch
        (1, 0, 0, {}, False),  # killed in the first
        (3, 3, 3, {("t", 0): 30}, False),
        (3, 2, 3, {("t", 0): 30}, False),  # killed after the last write of the third
        (3, 2, 2, {("t", 0): 20}, False),  # killed in the third
        (3, 3, 2, {("t", 0): 20}, True),  # the third is gone, with its commit in the log
        (3, 3, 3, {("t", 0): 20}, True),  # the last one is gone
        (3, 2, 2, {("t", 0): 10}, True),
        (3, 3, 3, {}, True),  # all are gone
        (3, 3, 3, {("t", 0): 40}, True),
    ],
)
def test_batches_must_end_where_the_checkpoint_does(
    begun: int, committed: int, landed: int, ends: dict[str, Any], stops: bool
) -> None:
    claim = Claim.__new__(Claim)
    claim._checkpoint = _Checkpoint(begun, committed)  # type: ignore[assignment]
    fence = SimpleNamespace(written=lambda _, version: version < transaction(1, landed))
    marker = CheckpointMarker(1, "lake", {"t": "id"}, {})

    def check(topic_id: str) -> None:
        claim._check_end(marker, fence, Coverage(ends, {}, frozenset()), {"t": TopicInfo(topic_id, 1)})  # type: ignore[arg-type]

    check("made anew: what is lost of it is said elsewhere")
    if stops:
        with pytest.raises(HaltError, match="does not end where the checkpoint does: t/0: batches ends at"):
            check("id")
    else:
        check("id")


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            CheckpointMarker(2, "other", {"t": "id"}, {}),
            "belongs to other tables than those in /lake: delete the checkpoint",
        ),
        (CheckpointMarker(2, "lake", {"t": "id", "u": "id"}, {}), "is for the topics t and u: delete the checkpoint"),
        (
            CheckpointMarker(1, "lake", {"t": "id"}, {}),
            "another job has taken over: the checkpoint holds epoch 1, the tables",
        ),
        (CheckpointMarker(2, "lake", {"t": "id"}, {}), "looks whether it is an old copy, at batch 1"),
    ],
)
def test_a_checkpoint_of_another_job_is_refused(marker: CheckpointMarker, said: str) -> None:
    def check_batch(epoch: int, batch: int) -> None:
        raise HaltError(f"looks whether it is an old copy, at batch {batch}")

    claim = Claim.__new__(Claim)
    claim._lake, claim._checkpoint = "/lake", _Checkpoint(2, 2)  # type: ignore[assignment]
    fence = SimpleNamespace(lake_id=lambda: "lake", epoch=lambda: 2, check_batch=check_batch)
    with pytest.raises(HaltError, match=said):
        claim._check_checkpoint(marker, fence, {"t": TopicInfo("id", 1)})  # type: ignore[arg-type]


def test_a_checkpoint_of_another_query_is_refused() -> None:
    storage = SimpleNamespace(exists=lambda path: path.endswith("/offsets"), read=lambda _: None)
    with pytest.raises(HaltError, match="/c is the checkpoint of another query"):
        Checkpoint(storage, "/c").marker()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "\0" * 60, 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":1', "v1", "v1\n[]", 'v1\n{"t":{"0":null}}']
)
def test_a_damaged_file_of_the_checkpoint_is_named(text: str) -> None:
    storage = SimpleNamespace(read=lambda _: text)
    with pytest.raises(
        HaltError, match=r"/c/offsets/3 is damaged \(.*\), as after a loss of power: delete the checkpoint /c"
    ):
        Checkpoint(storage, "/c").ends(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "claimed", "properties", "empty", "stops"),
    [
        (5, False, {}, True, True),
        (0, False, {}, True, False),  # nothing has landed
        (5, True, {}, True, False),  # a job has claimed it: somebody deleted the rows, which the proof says
        (5, False, {RETAINED_FROM: "2026-05-06"}, True, False),  # of an older version, copied without its log
        (5, False, {}, False, False),
    ],
)
def test_a_table_that_was_dropped_and_made_again_stops_the_job(
    written: int, claimed: bool, properties: dict[str, str], empty: bool, stops: bool
) -> None:
    claim = Claim.__new__(Claim)
    loaded = SimpleNamespace(load=lambda _: SimpleNamespace(isEmpty=lambda: empty))
    claim._lake, claim._spark = "/lake", SimpleNamespace(read=SimpleNamespace(format=lambda _: loaded))  # type: ignore[assignment]
    fence = SimpleNamespace(never_claimed=lambda _: not claimed, properties=lambda _: properties)
    there = Coverage({}, {}, frozenset(), written={"events": written})
    said = "the table events is empty, and 5 rows of it were landed: somebody dropped it"
    with pytest.raises(HaltError, match=said) if stops else contextlib.nullcontext():
        claim._check_tables(fence, there)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrote", "found", "strays", "stops"),
    [(5, 5, False, False), (5, 4, False, True), (5, 4, True, True), (5, 6, False, True), (5, 6, True, False)],
)
def test_rows_of_an_interrupted_batch_must_all_be_there(wrote: int, found: int, strays: bool, stops: bool) -> None:
    """Missing ones would count as resends."""
    fence, log = SimpleNamespace(rows_of=lambda *_: wrote), CapturingLogger()
    said = f"the table events holds {found} of the {wrote} rows that this batch wrote before the last stop"
    with pytest.raises(HaltError, match=said) if stops else contextlib.nullcontext():
        check_rows(fence, "events", 1, found, log, strays=strays)  # type: ignore[arg-type]
    assert not log.calls
    fence.rows_of = lambda *_: None
    check_rows(fence, "events", 1, found, log, strays=strays)  # type: ignore[arg-type]
    assert [call.kwargs["table"] for call in log.calls] == ["events"]


@pytest.mark.parametrize(
    ("landed", "begun", "known", "first", "end", "said"),
    [
        ({("t", 0): 10}, {}, {}, 0, 9, "shorter"),
        ({("t", 0): 10}, {}, {}, 0, 10, ""),
        ({("t", 0): 10}, {}, {}, 10, 20, ""),
        ({("t", 0): 10}, {}, {}, 11, 20, "t/0: 10 to 10"),
        ({}, {}, {}, 11, 20, ""),  # of a new topic nothing was ever asked
        ({}, {"id": {}}, {}, 11, 20, "t/0: 0 to 10"),  # nothing of it has landed since a job claimed it
        ({}, {"id": {"0": 11}}, {}, 11, 20, ""),
        ({}, {}, {"t": "id"}, 11, 20, "t/0: 0 to 10"),  # claimed by an older version, whose checkpoint is there
        ({}, {}, {"t": "older"}, 11, 20, "t (id older, recreated): of all partitions"),
    ],
)
def test_what_kafka_lacks_is_a_loss_or_stops_the_job(
    landed: dict[str, Any], begun: dict[str, Any], known: dict[str, Any], first: int, end: int, said: str
) -> None:
    asked = {True: first, False: end}
    brokers = SimpleNamespace(offsets=lambda pairs, *, earliest: dict.fromkeys(pairs, asked[earliest]))
    fence = SimpleNamespace(properties=lambda _: {BEGUN: json.dumps(begun)})

    def found() -> list[str]:
        losses = gaps.find(Coverage(landed, {}, frozenset()), brokers, {"t": TopicInfo("id", 1)}, known, fence)  # type: ignore[arg-type]
        return [str(loss) for loss in losses]

    if said == "shorter":
        with pytest.raises(
            HaltError, match="the topic is shorter than what was landed of it: t/0: landed to 10, ends at 9"
        ):
            found()
    else:
        assert ([said] if said else []) == found()[:1]


@pytest.mark.parametrize(("given_up", "said"), [((), ["t/0 (id older, recreated): from 7 on"]), ((("older", 0),), [])])
def test_what_a_recreated_topic_lost_is_accepted_once(given_up: tuple[Any, ...], said: list[str]) -> None:
    coverage = Coverage({}, {("t", "older", 0): 7}, frozenset(given_up))
    brokers = SimpleNamespace(offsets=lambda pairs, *, earliest: dict.fromkeys(pairs, 0))
    fence = SimpleNamespace(properties=lambda _: {})
    losses = gaps.find(coverage, brokers, {"t": TopicInfo("id", 1)}, {"t": "older"}, fence)  # type: ignore[arg-type]
    assert [str(loss) for loss in losses] == said
