"""Kafka with SASL_SSL, SCRAM and a private CA; and what is said when the password or the CA is wrong."""

from __future__ import annotations

import asyncio
import signal
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
from tests.system.landing import store

pytestmark = [pytest.mark.kafka, pytest.mark.long]

USER, PASSWORD = "headrace", "not-a-secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[GuardedKafka]:
    with GuardedKafka(
        tmp_path_factory.mktemp("kafka"),
        "SASL_SSL",
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.guarded.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        },
        authority=authority,
        scram_users={USER: PASSWORD},
    ) as running:
        yield running


def access(secured: GuardedKafka, authority: Authority, **other: Any) -> dict[str, Any]:
    """Settings for the listener that asks."""
    right = {
        "bootstrap_servers": secured.guarded,
        "security_protocol": "SASL_SSL",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "ca": authority.file,
    }
    return {**right, **other}


async def test_a_receiver_stores_with_a_password_over_tls(
    secured: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    plain, mark = own_topics(secured.bootstrap), uuid.uuid4().hex
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    kafka = access(secured, authority, sasl_password_file=password)
    del kafka["sasl_password"]
    with Receiver("forward", plain, tmp_path, {"kafka": kafka}) as receiver:
        await receiver.start()
        await store(receiver, mark)
        assert len(await events(plain, mark)) == 1
        assert PASSWORD not in receiver.said()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "password": ({"sasl_password": "wrong"}, "SASL"),
    "user": ({"sasl_username": "nobody"}, "SASL"),
    "CA": ({"ca": None}, "certificate"),
    "protocol": ({"security_protocol": "SASL_PLAINTEXT", "ca": None, "request_timeout": 5}, ""),  # nobody answers
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_is_said_in_one_line_and_it_waits(
    secured: GuardedKafka, authority: Authority, tmp_path: Path, name: str
) -> None:
    """Unready and alive: nobody restarts it, and when the broker's side is put right it goes on."""
    other, word = WRONG[name]
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    if name == "CA":
        other = {"ca": Authority(stranger).file}
    kafka = {name: value for name, value in access(secured, authority, **other).items() if value is not None}
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
