"""Kafka that asks who is there: by SCRAM, client certificates, OAUTHBEARER and Amazon MSK's login; and what is wrong in words."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_cli.machine.tether import tethered
from headrace_cli.stack.broker import HOST
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings

from tests.common import test_msk as aws
from tests.common.test_msk import at_aws
from tests.contract.certificates import Authority
from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.msk import Door
from tests.contract.receiver import Receiver, Receivers, variables
from tests.contract.tokens import CLIENT, SECRET, Signer, TokenEndpoint
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.lake.lander import QUICK
from tests.system.conftest import GUARDED, PASSWORD, USER, Broker

__all__ = ["at_aws"]  # a fixture, for every test
pytestmark = [pytest.mark.kafka, pytest.mark.long]

SECRETS: Final = {"password": PASSWORD, "certificate": PASSWORD, "token": SECRET, "msk": aws.SECRET}

Ways = Mapping[str, Mapping[str, Any]]


async def store(receiver: Receiver, mark: str) -> None:
    """Sends one event and hears that it is stored."""
    async with await ContractClient.connect(ForwardDialect(), receiver.address) as client:
        await client.receives(await client.send(values(1, mark)))


@pytest.fixture
async def door(broker: Broker) -> AsyncIterator[Door]:
    """What clients of the broker's second listener go through."""
    certificate = broker.authority.issue("door", "door")
    async with Door(broker.listener.behind[1], broker.listener.port, aws.REGION, certificate) as door:
        yield door


@pytest.fixture
async def endpoint(broker: Broker) -> AsyncIterator[TokenEndpoint]:
    async with TokenEndpoint(broker.signer, tls=broker.authority.issue("login", "login")) as endpoint:
        yield endpoint


@pytest.fixture
def ways(broker: Broker, door: Door, endpoint: TokenEndpoint, tmp_path: Path) -> Ways:
    """Settings of KAFKA for each way in, by name."""
    ca, password, secret = broker.authority.file, tmp_path / "password", tmp_path / "secret"
    password.write_text(PASSWORD + "\n")
    secret.write_text(SECRET + "\n")
    certificate, key = broker.authority.issue("client", "headrace")
    own: dict[str, dict[str, Any]] = {
        "password": {"ca": ca, "sasl_username": USER, "sasl_password_file": password},
        "certificate": {"ca": ca, "certificate": certificate, "key": key},
        "token": {
            "sasl_mechanism": "OAUTHBEARER",
            "oauth_endpoint": endpoint.url,
            "oauth_client_id": CLIENT,
            "oauth_client_secret_file": secret,
            "oauth_scope": "kafka",
            "oauth_ca": ca,
        },
        "msk": {"ca": ca, "sasl_mechanism": "AWS_MSK_IAM", "request_timeout": 10},
    }
    at = {**broker.at, "MSK": f"{HOST}:{broker.listener.port}"}
    protocols = {**GUARDED, "MSK": "SASL_SSL"}
    return {
        name: {"bootstrap_servers": at[name.upper()], "security_protocol": protocols[name.upper()], **settings}
        for name, settings in own.items()
    }


@pytest.mark.parametrize("way", SECRETS)
async def test_a_receiver_stores(
    ways: Ways, way: str, door: Door, endpoint: TokenEndpoint, topics: KafkaSettings, start: Receivers
) -> None:
    """By all of its clients, and again after the broker has ended the connections."""
    mark = uuid.uuid4().hex
    receiver = await start(kafka=ways[way])
    await store(receiver, mark)
    if way == "msk":
        before = len(door.tokens)
        assert before > 1
        door.cut()
        await store(receiver, mark)
        assert len(door.tokens) > before
    assert len(await events(topics, mark)) == (2 if way == "msk" else 1)
    expiry = await receiver.metric("kafka_certificate_expiry_timestamp_seconds")
    assert (expiry > time.time()) == (way == "certificate")
    assert len(endpoint.asked) == (way == "token"), "its clients share one token"
    assert len(set(door.tokens)) == (way == "msk"), "its clients share one token"
    for said in (SECRETS[way], *door.tokens):
        assert said not in receiver.said()


def _begin(environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = tethered([sys.executable, "-m", "headrace_lake", "--once"])
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


@pytest.mark.spark
@pytest.mark.parametrize("way", ["certificate", "token", pytest.param("msk", marks=pytest.mark.full)])
async def test_the_landing_job_reads(
    ways: Ways, way: str, door: Door, endpoint: TokenEndpoint, topics: KafkaSettings, start: Receivers, tmp_path: Path
) -> None:
    """When a token comes after it has waited for one; by the library of Amazon's own."""
    mark = uuid.uuid4().hex
    await store(await start(), mark)
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("spark", "s3", "msk") if way == "msk" else ("spark",):
        for jar in jars(name).glob("*.jar"):
            (folder / jar.name).symlink_to(jar)
    endpoint.instead = (401, "") if way == "token" else None
    lake = {"path": tmp_path / "lake", "checkpoint": tmp_path / "checkpoint", "jars": folder}
    environment = variables(topics, {"kafka": ways[way], "lake": lake})
    log = tmp_path / "lake.log"
    job = _begin({**environment, **QUICK, "JAVA_HOME": str(java_home())}, log)
    try:
        if way == "token":
            await until(lambda: "Kafka's client does not start: " in log.read_text(), "it says so", 10 * PATIENCE)
            endpoint.instead = None
        await until(lambda: job.poll() is not None, "it ends", 10 * PATIENCE)
    finally:
        job.kill()
    assert job.returncode == 0, log.read_text()
    assert SECRETS[way] not in log.read_text()
    (row,) = query.run("select body from events", tmp_path / "lake")
    assert json.loads(row["body"])["mark"] == mark
    assert set(door.mechanisms) == ({b"AWS_MSK_IAM"} if way == "msk" else set())
    assert set(door.hosts) == ({"localhost"} if way == "msk" else set())


NONE: Final = dict.fromkeys(("certificate", "key"))
WRONG: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "password": ("password", {"sasl_password": "wrong", "sasl_password_file": None}, "SASL"),
    "CA": ("password", {"ca": "another"}, "certificate"),
    "certificate": ("certificate", NONE, ""),  # closed, at any step
    "token": ("token", {}, "the broker does not accept the token"),
    "region": ("msk", {}, "does not accept the token from AWS's signer: made for kafka.us-west-1"),
}
"""The way, other settings, and a part of what is said."""


@pytest.mark.parametrize("name", WRONG)
async def test_it_says_what_is_wrong_in_a_line_and_waits(
    ways: Ways, endpoint: TokenEndpoint, start: Receivers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Unready and alive: nobody restarts it, and when the broker's side is put right it goes on."""
    way, other, word = WRONG[name]
    if other.get("ca"):
        other = {"ca": Authority(tmp_path).file}
    right, endpoint.signer = endpoint.signer, Signer()
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    receiver = start.make(
        kafka={setting: value for setting, value in {**ways[way], **other}.items() if value is not None}
    )
    receiver.spawn()
    problem = await receiver.problem()
    receiver.ops = receiver.lines("starting")[-1]["ops"]
    await asyncio.sleep(3)  # several attempts later: the same line does not come again, nor do a library's
    (line,) = receiver.told()
    assert line["event"] == "kafka is not usable"
    assert word.lower() in problem.lower()
    assert "\n" not in problem
    assert len(problem) < 300
    status, text = await receiver.get("/readyz")
    assert (status, text.strip()) == (503, problem)
    assert (await receiver.get("/livez"))[0] == 200
    assert receiver.exit_status() is None
    assert "wrong" not in problem
    if name == "token":
        endpoint.signer = right
        await receiver.listens()
        await store(receiver, uuid.uuid4().hex)
    await receiver.drains()


async def test_tokens_that_end_soon_cost_no_event(
    ways: Ways, endpoint: TokenEndpoint, topics: KafkaSettings, start: Receivers
) -> None:
    """The broker closes a connection whose token has ended; aiokafka does not log in again on the same one."""
    endpoint.life, mark, sent = 4, uuid.uuid4().hex, 0
    receiver = await start(kafka=ways["token"])
    while len(endpoint.asked) < 4:
        await store(receiver, mark)
        sent += 1
        await asyncio.sleep(0.2)
    assert len(await events(topics, mark)) == sent
