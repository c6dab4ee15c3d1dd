"""How the job reads Spark's reports, brokers' answers and clocks, and what it reports itself, without any of them."""

from __future__ import annotations

import re
import time
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_common.protocol import installed
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.dedup.index import IndexState
from headrace_lake.kafka import unlanded
from headrace_lake.kafka.checkpoint import of_epoch, ranges
from headrace_lake.kafka.source import Brokers, client_options
from headrace_lake.landing.landing import BatchResult
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.landing.plan import Landed
from headrace_lake.spark.causes import kafka_is_away, root_cause
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.layout import SCHEMAS
from headrace_lake.upkeep import maintenance
from headrace_lake.upkeep.clocks import TOLERANCE, ClockGuard
from headrace_lake.upkeep.maintenance import Maintenance
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import PROTOCOLS, STALLED, STARTING, LakeHealth
from headrace_lake.upkeep.retention import first_kept
from structlog.testing import CapturingLogger

from tests.contract.certificates import Authority


def java(text: str, cause: Any = None) -> Any:
    return SimpleNamespace(toString=lambda: text, getCause=lambda: cause)


def test_each_protocol_has_its_own_label_in_metrics() -> None:
    assert {*PROTOCOLS} == {protocol.name for protocol in installed()}


def test_the_innermost_exception_is_the_reason_in_one_line() -> None:
    inner = java("org.apache.spark.SparkException: [X.Y] it is\nbroken. SQLSTATE: 42000\n\nstack")
    error: Any = Exception("An error occurred while calling o1.save: " + "\n\tat x" * 200)
    error.java_exception = java("java.lang.RuntimeException: outer", inner)
    assert root_cause(error) == "SparkException: [X.Y] it is broken."
    assert root_cause(ValueError("plain\ntext")) == "ValueError: plain text"


@pytest.mark.parametrize(
    ("cause", "away"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Call(...) timed out", True),
        ("java.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 120000 milliseconds", True),
        ("java.net.ConnectException: Call From a to hdfs:8020 failed on connection: Connection refused", False),
        ("java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]", False),
        ("org.apache.spark.rpc.RpcTimeoutException: Futures timed out", False),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", False),
        (
            "KafkaException: x | org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given",
            True,
        ),
        ("org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: a", False),
        ("KafkaException: x | javax.security.auth.login.LoginException: The response code 401", True),
    ],
)
def test_kafka_away_is_told_from_kafka_refuses(cause: str, away: bool) -> None:
    assert kafka_is_away(cause) is away


@pytest.mark.parametrize(
    "text", ["", "\0" * 60, 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":1', "v1", "v1\n[]", 'v1\n{"t":{"0":null}}']
)
def test_a_damaged_file_of_the_checkpoint_is_named(text: str) -> None:
    storage = SimpleNamespace(read=lambda _: text)
    with pytest.raises(HaltError, match=r"the checkpoint is damaged: /c/offsets/3 \(.*\); start again"):
        ranges(storage, "/c", 3)  # type: ignore[arg-type]


def test_a_new_epoch_deletes_all_checkpoints_but_its_own() -> None:
    deleted: list[str] = []
    older = f"epoch-6-{'0' * 32}"
    storage: Any = SimpleNamespace(names=lambda _: [older, "offsets", "epoch-7"], delete=deleted.append)
    path = of_epoch(storage, "/c", 7)
    assert re.fullmatch("/c/epoch-7-[0-9a-f]{32}", path)
    assert deleted == [f"/c/{older}"], "what is not ours stays"
    assert of_epoch(storage, "/c", 7) != path, "a lake that was restored from a copy has the same epochs"


def test_brokers_that_give_topics_no_ids_are_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """78 ends the process, and a supervisor does not start it again and again."""
    brokers = Brokers(MagicMock(), KafkaSettings())
    for name in ("_client", "_wait"):
        monkeypatch.setattr(brokers, name, MagicMock())
    brokers._wait().topicId().toString.return_value = "A" * 22  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"give the topic t no id: they are older than Kafka 2\.8"):
        brokers.topics(["t"])


def test_executors_get_the_certificates_themselves(tmp_path: Path) -> None:
    """They may run where the driver's file is not. A file without one is a wrong setting."""
    made = Authority(tmp_path).file
    both = tmp_path / "both.pem"
    both.write_text(f"# the old one\n{made.read_text()}\n# the new one\n{made.read_text()}")
    options = client_options(KafkaSettings(security_protocol="SSL", ca=both))
    assert options["ssl.truststore.type"] == "PEM"
    assert options["ssl.truststore.certificates"] == "\n".join([made.read_text().strip()] * 2)
    assert str(tmp_path) not in "".join(options.values())
    assert "ssl.truststore.certificates" not in client_options(KafkaSettings())
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match=r"key\.pem has no certificate in PEM in it"):
        client_options(KafkaSettings(security_protocol="SSL", ca=tmp_path / "key.pem"))


NOW = 1_770_000_000_000
YEARS = 2 * 365 * 86_400_000
HOUR = 3_600_000


def test_it_stops_and_goes_on_and_says_so_once() -> None:
    log, metrics, shift = CapturingLogger(), LakeMetrics(), [0.0]
    guard = ClockGuard(metrics, log, lambda: NOW / 1000 + shift[-1], lambda: 7.0)  # type: ignore[arg-type]
    assert not guard.agree(), "nothing has landed"
    guard.landed(NOW)
    guard.landed(None)
    for seconds, agrees in (
        (0.0, 1),
        (TOLERANCE, 1),
        (1e8, 0),
        (TOLERANCE + 1, 0),
        (-TOLERANCE - 1, 0),
        (-TOLERANCE, 1),
    ):
        shift.append(seconds)
        assert guard.agree() == agrees
        said = [
            metrics.registry.get_sample_value(f"headrace_lake_{name}")
            for name in ("clocks_disagree", "clock_ahead_seconds")
        ]
        assert said == [1 - agrees, seconds]
    assert [call.args[0] for call in log.calls] == ["clocks disagree", "clocks agree"]


def test_the_newest_landed_day_is_kept_whatever_the_clock_says() -> None:
    assert first_kept(30, NOW / 1000, "2026-02-02") == date(2026, 1, 3)
    assert first_kept(30, (NOW + YEARS) / 1000, "2026-02-02") == date(2026, 2, 2)
    assert first_kept(30, NOW / 1000, "") == date(2026, 1, 3)
    assert first_kept(10**9, NOW / 1000, "2026-02-02") == date.min, "more days than a calendar has: for ever"


@pytest.mark.parametrize("own", [NOW, NOW + HOUR, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("newest", [0, NOW - 60_000, NOW + YEARS])
def test_ids_are_known_since_the_first_unlanded_record(monkeypatch: pytest.MonkeyPatch, own: int, newest: int) -> None:
    """Where all has landed, no clock alone and no record from the future hides what landed lately."""
    monkeypatch.setattr(unlanded, "time", SimpleNamespace(time=lambda: own / 1000))
    ends = {("t", 0): 10, ("t", 1): 2_000_000}
    kafka: Any = SimpleNamespace(offsets=lambda pairs, *, earliest: dict.fromkeys(pairs, 0) if earliest else ends)
    first_times = Mock(return_value={("t", 0): 70})

    def since(*landed: int) -> int:
        pairs = dict(zip(ends, landed, strict=True))
        return unlanded.oldest_to_come(kafka, pairs, pairs, newest, first_times)

    assert since(10, 2_000_000) == min(own, newest)
    assert since(3, 2_000_000) == min(70, newest)
    assert since(10, 10) == 0, "all ids are read where none is found, as after an aborted transaction"
    assert [call.args for call in first_times.call_args_list] == [({("t", 0): (3, 10)},), ({("t", 1): (10, 1010)},)]


@pytest.mark.parametrize(
    ("reason", "silent", "alive"),
    [
        ("", STALLED - 1, True),
        ("", STALLED + 1, False),
        ("Spark is starting", STARTING - 1, True),  # on a busy machine a JVM takes that long
        ("Spark is starting", STARTING + 1, False),
    ],
)
def test_a_start_may_take_longer_than_a_turn(
    monkeypatch: pytest.MonkeyPatch, reason: str, silent: float, alive: bool
) -> None:
    health = LakeHealth(LakeMetrics())
    then = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: then)
    health.set_waiting(reason)
    health.heartbeat()
    monkeypatch.setattr(time, "monotonic", lambda: then + silent)
    assert (health.live_problems() == []) is alive


@pytest.mark.parametrize(("forgotten", "span"), [(None, 60.0), (-90_000, 60.0), (1_000, 9.0), (20_000, 0.0)])
def test_duplicates_are_found_as_far_back_as_ids_are_remembered(forgotten: int | None, span: float) -> None:
    assert IndexState(1, 41, forgotten).span(10_000, 60.0) == span


def test_a_log_is_cleaned_every_500_commits_if_clocks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    log, tables, agree = Mock(files={}), Mock(), Mock()
    log.latest.return_value, log.version_of.return_value = 0, time.time()  # of a vacuum
    monkeypatch.setattr(maintenance, "LiveFiles", lambda *_: log)
    monkeypatch.setattr(maintenance, "rest_after", lambda *_: 0.0)
    made: dict[str, Any] = {"metrics": LakeMetrics(), "log": Mock(), "stopping": lambda: False, "agree": agree}
    job = Maintenance(tables, LakeSettings(), epoch=1, **made)
    cleaned = []
    for log.read_to, agree.return_value in ((499, True), (500, False), (500, True), (999, True), (1000, True)):
        job.run_due(at_once=True)
        cleaned.append(tables.clean_log.call_count)
    assert cleaned == [0, 0, len(SCHEMAS), len(SCHEMAS), 2 * len(SCHEMAS)]


def test_a_batch_is_counted_in_the_metrics() -> None:
    metrics = LakeMetrics()
    landed = Landed(
        datetime.now(UTC), Counter({("t", 0): 12}), 9, 0, [LeftOut("id", 0, 1, "d.1", "forward")] * 2, ages={0: 8, 148: 1},
        reasons={"bad_json": 2}, index=IndexState(9, 288, None), span=60.0,
    )  # fmt: skip
    LakeHealth(metrics).landed(BatchResult(3, 2.0, {("t", 0): 12}, landed))
    found = metrics.exposition().decode().splitlines()
    for line in (
        "records_total 12.0", 'duplicates_total{protocol="forward"} 2.0', 'quarantined_total{reason="bad_json"} 2.0',
        'freshness_seconds_bucket{le="1.0"} 0.0', 'freshness_seconds_bucket{le="2.0"} 8.0',
        'freshness_seconds_bucket{le="+Inf"} 9.0', "freshness_seconds_sum 166.0",
        "remembered_ids 9.0", "remembered_bytes 288.0", "remembered_seconds 60.0",
    ):  # fmt: skip
        assert f"headrace_lake_{line}" in found, line
