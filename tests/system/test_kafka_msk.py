"""Kafka with Amazon MSK's login: a door with TLS that reads the tokens, in front of a broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings

from tests.common.test_msk import REGION, at_aws
from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.msk import Door
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics
from tests.contract.waiting import BROKER_TIME, PATIENCE, until
from tests.system.test_kafka_tokens import landing, store

__all__ = ["at_aws"]  # a fixture, for every test
pytestmark = [pytest.mark.kafka, pytest.mark.long]


class Behind(EmbeddedKafka):
    """A broker that tells who comes by the listener `behind` to come through the door."""

    def __init__(self, folder: Path) -> None:
        port, controller, self.behind, self.door = (free_port() for _ in range(4))
        super().__init__(
            folder,
            port,
            controller,
            {
                "listeners": f"PLAINTEXT://{HOST}:{port},BEHIND://{HOST}:{self.behind},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{port},BEHIND://{HOST}:{self.door}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    running = Behind(tmp_path_factory.mktemp("kafka"))
    running.start(BROKER_TIME)
    yield running
    running.stop()


def access(broker: Behind, authority: Authority) -> dict[str, object]:
    return {
        "bootstrap_servers": f"{HOST}:{broker.door}",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "AWS_MSK_IAM",
        "ca": authority.file,
        "request_timeout": 10,
    }


async def test_a_broker_takes_the_token(broker: Behind, tmp_path: Path) -> None:
    """By all clients of the receiver, and again after the broker has ended the connections."""
    authority = Authority(tmp_path)
    plain = own_topics(broker.bootstrap)
    mark = uuid.uuid4().hex
    async with Door(broker.behind, broker.door, REGION, authority.issue("door", "door")) as door:
        with Receiver("forward", plain, tmp_path, {"kafka": access(broker, authority)}) as receiver:
            await receiver.start()
            await store(receiver, mark)
            before = len(door.tokens)
            assert before > 1
            door.cut()
            await store(receiver, mark)
            assert len(door.tokens) > before
            assert len(set(door.tokens)) == 1, "its clients share one token"
            assert door.tokens[0] not in receiver.log.read_text()
    assert len(await events(plain, mark)) == 2


async def test_a_token_for_another_region(broker: Behind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    authority = Authority(tmp_path)
    async with Door(broker.behind, broker.door, REGION, authority.issue("door", "door")):
        with Receiver("forward", KafkaSettings(), tmp_path, {"kafka": access(broker, authority)}) as receiver:
            receiver.spawn()
            problem = await receiver.problem()
            assert "the broker does not accept the token from AWS's signer: made for kafka.us-west-1" in problem
            assert receiver.exit_status() is None


@pytest.mark.spark
@pytest.mark.full
async def test_the_landing_job_reads_by_awss_own_library(
    broker: Behind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)  # brokers at AWS have it in their names
    authority = Authority(tmp_path)
    plain = own_topics(broker.bootstrap)
    mark = uuid.uuid4().hex
    with Receiver("forward", plain, tmp_path) as receiver:
        await receiver.start()
        await store(receiver, mark)
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("spark", "s3", "msk"):
        for jar in jars(name).glob("*.jar"):
            (folder / jar.name).symlink_to(jar)
    lake = {"path": tmp_path / "lake", "checkpoint": tmp_path / "checkpoint", "jars": folder}
    said = tmp_path / "lake.log"
    async with Door(broker.behind, broker.door, REGION, authority.issue("door", "door")) as door:
        job = landing(plain, {"kafka": access(broker, authority), "lake": lake}, said)
        try:
            await until(lambda: job.poll() is not None, "it ends", 10 * PATIENCE)
        finally:
            job.kill()
        assert job.returncode == 0, said.read_text()
        assert set(door.mechanisms) == {b"AWS_MSK_IAM"}
        assert set(door.hosts) == {"localhost"}
    (row,) = query.run("select body from events", tmp_path / "lake")
    assert json.loads(row["body"])["mark"] == mark
