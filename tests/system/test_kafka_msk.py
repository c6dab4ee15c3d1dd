"""Kafka with Amazon MSK's login: a door with TLS that reads the tokens, in front of a broker."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.stack.broker import HOST
from headrace_common.operations.settings import KafkaSettings

from tests.common.test_msk import REGION, SECRET, at_aws
from tests.contract.certificates import Authority
from tests.contract.msk import Door
from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import events
from tests.system.conftest import Broker
from tests.system.landing import landing, store

__all__ = ["at_aws"]  # a fixture, for every test
pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
async def door(broker: Broker, authority: Authority) -> AsyncIterator[Door]:
    """What clients of the broker's second listener go through."""
    certificate = authority.issue("door", "door")
    async with Door(broker.listener.behind[1], broker.listener.port, REGION, certificate) as door:
        yield door


@pytest.fixture
def kafka(broker: Broker, authority: Authority) -> dict[str, object]:
    return {
        "bootstrap_servers": f"{HOST}:{broker.listener.port}",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "AWS_MSK_IAM",
        "ca": authority.file,
        "request_timeout": 10,
    }


async def test_a_broker_takes_the_token(
    door: Door, kafka: dict[str, object], topics: KafkaSettings, start: Receivers
) -> None:
    """By all clients of the receiver, and again after the broker has ended the connections."""
    mark = uuid.uuid4().hex
    receiver = await start(kafka=kafka)
    await store(receiver, mark)
    before = len(door.tokens)
    assert before > 1
    door.cut()
    await store(receiver, mark)
    assert len(door.tokens) > before
    assert len(set(door.tokens)) == 1, "its clients share one token"
    assert door.tokens[0] not in receiver.said()
    assert len(await events(topics, mark)) == 2


async def test_a_token_for_another_region(
    door: Door, kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    with Receiver("forward", KafkaSettings(), tmp_path, {"kafka": kafka}) as receiver:
        receiver.spawn()
        problem = await receiver.problem()
        assert "the broker does not accept the token from AWS's signer: made for kafka.us-west-1" in problem
        assert receiver.exit_status() is None


@pytest.mark.spark
@pytest.mark.full
async def test_the_landing_job_reads_by_awss_own_library(
    door: Door, kafka: dict[str, object], topics: KafkaSettings, start: Receivers, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    await store(await start(), mark)
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("spark", "s3", "msk"):
        for jar in jars(name).glob("*.jar"):
            (folder / jar.name).symlink_to(jar)
    async with landing(topics, kafka, tmp_path, mark, SECRET, folder):
        pass
    assert set(door.mechanisms) == {b"AWS_MSK_IAM"}
    assert set(door.hosts) == {"localhost"}
