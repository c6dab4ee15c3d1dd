"""How the job reads Spark's reports, Java's exceptions and brokers' answers, without any of them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka.checkpoint import of_epoch, ranges
from headrace_lake.kafka.source import Brokers, client_options
from headrace_lake.spark.causes import kafka_is_away, root_cause
from headrace_lake.spark.halt import HaltError

from tests.contract.certificates import Authority


def java(text: str, cause: Any = None) -> Any:
    return SimpleNamespace(toString=lambda: text, getCause=lambda: cause)


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


def test_a_new_epoch_has_a_new_checkpoint_and_deletes_older_ones() -> None:
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
    for name in ("_client", "_list", "_wait"):
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
