"""What the brokers are asked, without brokers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka.source import Brokers, TopicInfo, client_options

from tests.contract.certificates import Authority


class Answers(Brokers):
    """Brokers whose topics have this id."""

    def __init__(self, topic_id: str) -> None:
        super().__init__(MagicMock(), KafkaSettings())
        self._id = topic_id

    def _client(self) -> Any:
        return SimpleNamespace(
            describeTopics=lambda names: SimpleNamespace(topicNameValues=lambda: {n: n for n in names})
        )

    def _list(self, names: Any) -> Any:
        return list(names)

    def _wait(self, future: Any) -> Any:
        partitions = SimpleNamespace(size=lambda: 3)
        identity = SimpleNamespace(toString=lambda: self._id)
        return SimpleNamespace(topicId=lambda: identity, partitions=lambda: partitions)


def test_topics_have_ids() -> None:
    assert Answers("xHv2nGQMQ5mH0Vb8mTQ0wA").topics(["t"]) == {"t": TopicInfo("xHv2nGQMQ5mH0Vb8mTQ0wA", 3)}


def test_brokers_without_topic_ids_are_refused_as_a_wrong_setting() -> None:
    """`ConfigError` ends the process with 78: a supervisor does not start it again and again."""
    with pytest.raises(ConfigError, match=r"give the topic t no id: they are older than Kafka 2\.8"):
        Answers("A" * 22).topics(["t"])


def test_executors_get_the_certificates_themselves(tmp_path: Path) -> None:
    """They may run where the driver's file is not."""
    made = Authority(tmp_path).file
    both = tmp_path / "both.pem"
    both.write_text(f"# the old one\n{made.read_text()}\n# the new one\n{made.read_text()}")
    options = client_options(KafkaSettings(security_protocol="SSL", ca=both))
    assert options["ssl.truststore.type"] == "PEM"
    assert options["ssl.truststore.certificates"] == "\n".join([made.read_text().strip()] * 2)
    assert str(tmp_path) not in "".join(options.values())
    assert "ssl.truststore.certificates" not in client_options(KafkaSettings())


def test_a_ca_that_is_none_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match=r"key\.pem has no certificate in PEM in it"):
        client_options(KafkaSettings(security_protocol="SSL", ca=tmp_path / "key.pem"))
