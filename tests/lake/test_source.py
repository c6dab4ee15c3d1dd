"""What the brokers are asked, without brokers."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka.source import Brokers, TopicInfo, client_options

from tests.contract.certificates import Authority


@pytest.mark.parametrize("given", ["xHv2nGQMQ5mH0Vb8mTQ0wA", "A" * 22])
def test_topics_have_ids(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """Of brokers without them it is a wrong setting: 78 ends the process, and a supervisor does not start it again and again."""
    brokers = Brokers(MagicMock(), KafkaSettings())
    client = MagicMock()
    client.describeTopics.return_value.topicNameValues.return_value = {"t": "t"}
    monkeypatch.setattr(brokers, "_client", lambda: client)
    monkeypatch.setattr(brokers, "_list", list)
    found = MagicMock(
        **{"topicId.return_value.toString.return_value": given, "partitions.return_value.size.return_value": 3}
    )
    monkeypatch.setattr(brokers, "_wait", lambda *_: found)
    if given != "A" * 22:
        assert brokers.topics(["t"]) == {"t": TopicInfo(given, 3)}
        return
    with pytest.raises(ConfigError, match=r"give the topic t no id: they are older than Kafka 2\.8"):
        brokers.topics(["t"])


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
