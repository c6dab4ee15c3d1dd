"""What the brokers are asked, without brokers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka import source
from headrace_lake.kafka.source import Brokers, TopicInfo, client_options
from headrace_lake.spark.halt import KafkaAwayError

from tests.contract.certificates import Authority
from tests.contract.waiting import before


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

    def _wait(self, future: Any, patience: int | None = None) -> Any:
        partitions = SimpleNamespace(size=lambda: 3)
        identity = SimpleNamespace(toString=lambda: self._id)
        return SimpleNamespace(topicId=lambda: identity, partitions=lambda: partitions)


def test_topics_have_ids() -> None:
    assert Answers("xHv2nGQMQ5mH0Vb8mTQ0wA").topics(["t"]) == {"t": TopicInfo("xHv2nGQMQ5mH0Vb8mTQ0wA", 3)}


def test_brokers_without_topic_ids_are_refused_as_a_wrong_setting() -> None:
    """`ConfigError` ends the process with 78: a supervisor does not start it again and again."""
    with pytest.raises(ConfigError, match=r"give the topic t no id: they are older than Kafka 2\.8"):
        Answers("A" * 22).topics(["t"])


def test_a_partition_that_is_gone_is_waited_for_like_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was deleted between two questions: the job asks for the topics anew."""

    def gone(*_: Any) -> Any:
        raise source._UnknownTopicError

    brokers = Answers("x")
    monkeypatch.setattr(brokers, "_class", lambda _: MagicMock(), raising=False)
    monkeypatch.setattr(brokers, "_client", MagicMock())
    monkeypatch.setattr(brokers, "_wait", gone)
    with pytest.raises(KafkaAwayError):
        brokers.offsets([("t", 3)], earliest=True)


def test_each_partition_is_named_to_java_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch asks for the ends of all partitions, and built the question each time: two calls to Java for each partition."""
    made: list[tuple[str, int]] = []
    answers = {("t", 0): (5, -1), ("t", 1): (7, -1)}
    classes = {
        "org.apache.kafka.common.TopicPartition": before(lambda *pair: made.append(pair), lambda *pair: pair),
        "java.util.HashMap": Named,
    }
    brokers = Brokers(MagicMock(), KafkaSettings())
    monkeypatch.setattr(brokers, "_class", lambda name: classes.get(name, MagicMock()))
    monkeypatch.setattr(
        brokers, "_client", lambda: SimpleNamespace(listOffsets=lambda wanted, _: MagicMock(all=lambda: wanted))
    )
    monkeypatch.setattr(brokers, "_wait", lambda wanted, _: {pair: answers[pair] for pair in wanted})
    monkeypatch.setattr(source, "listed", dict)
    for pairs in ([], [("t", 0)], [("t", 0)], [("t", 0), ("t", 1)], [("t", 1)]):
        assert brokers.offsets(pairs, earliest=False) == {pair: answers[pair][0] for pair in pairs}
    assert made == [("t", 0), ("t", 0), ("t", 1), ("t", 1)]
    brokers.offsets([("t", 1)], earliest=True)
    assert len(made) == 5, "another question"


class Named(dict[Any, Any]):
    put = dict.__setitem__


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
