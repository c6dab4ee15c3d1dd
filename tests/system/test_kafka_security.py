"""Kafka over TLS with a private CA, by SCRAM and by client certificates; and what is said when one of them is wrong."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.guarded import GuardedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics
from tests.system.landing import landing, store

pytestmark = [pytest.mark.kafka, pytest.mark.long]

USER, PASSWORD = "headrace", "not-a-secret"
SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.guarded.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[GuardedKafka]:
    folder, users = tmp_path_factory.mktemp("secured"), {USER: PASSWORD}
    with GuardedKafka(folder, "SASL_SSL", SCRAM, authority=authority, scram_users=users) as running:
        yield running


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[GuardedKafka]:
    asks = {"ssl.client.auth": "required"}
    with GuardedKafka(tmp_path_factory.mktemp("mutual"), "SSL", asks, authority=authority) as running:
        yield running


def access(guarded: GuardedKafka, authority: Authority, **other: Any) -> dict[str, Any]:
    """Settings for the listener that asks."""
    given = {"bootstrap_servers": guarded.guarded, "security_protocol": "SSL", "ca": authority.file, **other}
    return {name: value for name, value in given.items() if value is not None}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with the password."""
    file = tmp_path / "secret"
    file.write_text(PASSWORD + "\n")
    return file


async def test_a_receiver_stores_with_a_password(
    secured: GuardedKafka, authority: Authority, secret: Path, tmp_path: Path
) -> None:
    plain, mark = own_topics(secured.bootstrap), uuid.uuid4().hex
    login = {"security_protocol": "SASL_SSL", "sasl_username": USER, "sasl_password_file": secret}
    with Receiver("forward", plain, tmp_path, {"kafka": access(secured, authority, **login)}) as receiver:
        await receiver.start()
        await store(receiver, mark)
        assert len(await events(plain, mark)) == 1
        assert PASSWORD not in receiver.said()


@pytest.mark.spark
async def test_an_event_from_a_client_to_the_lake_with_an_encrypted_key(
    mutual: GuardedKafka, authority: Authority, secret: Path, tmp_path: Path
) -> None:
    plain, mark = own_topics(mutual.bootstrap), uuid.uuid4().hex
    certificate, key = authority.issue("client", "headrace", password=PASSWORD)
    kafka = access(mutual, authority, certificate=certificate, key=key, key_password_file=secret)
    with Receiver("forward", plain, tmp_path, {"kafka": kafka}) as receiver:
        await receiver.start()
        await store(receiver, mark)
        assert len(await events(plain, mark)) == 1
        assert await receiver.metric("kafka_certificate_expiry_timestamp_seconds") > time.time()
        assert PASSWORD not in receiver.said()
    async with landing(plain, kafka, tmp_path, mark, PASSWORD):
        pass


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "password": ({"sasl_password": "wrong"}, "SASL"),
    "user": ({"sasl_username": "nobody"}, "SASL"),
    "CA": ({}, "certificate"),
    "protocol": ({"security_protocol": "SASL_PLAINTEXT", "ca": None, "request_timeout": 5}, ""),  # nobody answers
    "certificate": ({}, "asks for another KAFKA__CERTIFICATE"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_is_said_in_one_line_and_it_waits(
    request: pytest.FixtureRequest, authority: Authority, tmp_path: Path, name: str
) -> None:
    """Unready and alive: nobody restarts it, and when the broker's side is put right it goes on."""
    other, word = WRONG[name]
    if name == "CA":
        other = {"ca": Authority(tmp_path).file}
    guarded = request.getfixturevalue("mutual" if name == "certificate" else "secured")
    if name != "certificate":
        other = {"security_protocol": "SASL_SSL", "sasl_username": USER, "sasl_password": PASSWORD, **other}
    kafka = access(guarded, authority, **other)
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
