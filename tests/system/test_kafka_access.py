"""Kafka that asks who is there: by SCRAM, client certificates, OAUTHBEARER and Amazon MSK's login; and what is wrong in words."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.stack.broker import HOST
from headrace_common.operations.settings import KafkaSettings

from tests.common import test_msk as aws
from tests.common.test_msk import at_aws
from tests.contract.certificates import Authority
from tests.contract.msk import Door
from tests.contract.receiver import Receiver, Receivers
from tests.contract.tokens import CLIENT, SECRET, Signer, TokenEndpoint
from tests.contract.topic import events
from tests.contract.waiting import until
from tests.system.conftest import GUARDED, PASSWORD, USER, Broker
from tests.system.landing import landing, store

__all__ = ["at_aws"]  # a fixture, for every test
pytestmark = [pytest.mark.kafka, pytest.mark.long]

SECRETS: Final = {"password": PASSWORD, "certificate": PASSWORD, "token": SECRET, "msk": aws.SECRET}

Ways = Mapping[str, Mapping[str, Any]]


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
    }
    at = {
        name: {"bootstrap_servers": broker.at[name.upper()], "security_protocol": GUARDED[name.upper()]} for name in own
    }
    msk = {"bootstrap_servers": f"{HOST}:{broker.listener.port}", "security_protocol": "SASL_SSL", "ca": ca}
    return {
        **{name: {**at[name], **settings} for name, settings in own.items()},
        "msk": {**msk, "sasl_mechanism": "AWS_MSK_IAM", "request_timeout": 10},
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
    endpoint.instead = (401, "")
    async with landing(topics, ways[way], tmp_path, mark, SECRETS[way], folder) as says:
        if way == "token":
            await says("Kafka's client does not start: ")
            endpoint.instead = None
    assert set(door.mechanisms) == ({b"AWS_MSK_IAM"} if way == "msk" else set())
    assert set(door.hosts) == ({"localhost"} if way == "msk" else set())


NONE: Final = dict.fromkeys(("certificate", "key"))
WRONG: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "password": ("password", {"sasl_password": "wrong", "sasl_password_file": None}, "SASL"),
    "user": ("password", {"sasl_username": "nobody"}, "SASL"),
    "CA": ("password", {"ca": "another"}, "certificate"),
    "protocol": (
        "password",
        {"security_protocol": "SASL_PLAINTEXT", "ca": None, "request_timeout": 5},
        "",
    ),  # no answer
    "certificate": ("certificate", NONE, ""),  # closed, at any step
    "token": ("token", {}, "the broker does not accept the token"),
    "region": ("msk", {}, "does not accept the token from AWS's signer: made for kafka.us-west-1"),
}
"""The way, other settings, and a part of what is said."""


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_is_said_in_one_line_and_it_waits(
    ways: Ways, endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Unready and alive: nobody restarts it, and when the broker's side is put right it goes on."""
    way, other, word = WRONG[name]
    if other.get("ca"):
        other = {"ca": Authority(tmp_path).file}
    endpoint.signer = Signer()
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    kafka = {setting: value for setting, value in {**ways[way], **other}.items() if value is not None}
    with Receiver("forward", KafkaSettings(), tmp_path, {"kafka": kafka}) as receiver:
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
        receiver.signal(signal.SIGTERM)
        assert await receiver.ended() == 0


async def test_tokens_that_end_soon_cost_a_new_connection_and_no_event(
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


async def test_no_token_and_then_one(ways: Ways, endpoint: TokenEndpoint, start: Receivers) -> None:
    endpoint.instead = (503, "later")
    receiver = start.make(kafka={**ways["token"], "request_timeout": 5})
    receiver.spawn()
    assert f"no token from {endpoint.url}: status 503" in await receiver.problem()
    await until(lambda: len(endpoint.asked) > 3, "it tries again")
    (line,) = receiver.told()
    assert line["event"] == "kafka is not usable"
    endpoint.instead = None
    await receiver.listens()
    await store(receiver, uuid.uuid4().hex)
