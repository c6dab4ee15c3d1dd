"""Kafka that asks for client certificates: a receiver, the topics job and the landing job; and what is said without one."""

from __future__ import annotations

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

PASSWORD = "not-a-secret"


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[GuardedKafka]:
    asks = {"ssl.client.auth": "required"}
    with GuardedKafka(tmp_path_factory.mktemp("kafka"), "SSL", asks, authority=authority) as running:
        yield running


def access(mutual: GuardedKafka, authority: Authority, **other: Any) -> dict[str, Any]:
    """Settings for the listener that asks."""
    return {"bootstrap_servers": mutual.guarded, "security_protocol": "SSL", "ca": authority.file, **other}


@pytest.mark.spark
async def test_an_event_from_a_client_to_the_lake_with_an_encrypted_key(
    mutual: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    plain, mark = own_topics(mutual.bootstrap), uuid.uuid4().hex
    certificate, key = authority.issue("client", "headrace", password=PASSWORD)
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    kafka = access(mutual, authority, certificate=certificate, key=key, key_password_file=password)
    with Receiver("forward", plain, tmp_path, {"kafka": kafka}) as receiver:
        await receiver.start()
        await store(receiver, mark)
        assert len(await events(plain, mark)) == 1
        assert await receiver.metric("kafka_certificate_expiry_timestamp_seconds") > time.time()
        assert PASSWORD not in receiver.said()
    async with landing(plain, kafka, tmp_path, mark, PASSWORD):
        pass


async def test_without_a_certificate_it_waits_and_says_what_is_missing(
    mutual: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    with Receiver("forward", KafkaSettings(), tmp_path, {"kafka": access(mutual, authority)}) as receiver:
        receiver.spawn()
        assert "asks for another KAFKA__CERTIFICATE" in await receiver.problem()
        assert receiver.exit_status() is None


async def test_a_key_of_another_certificate_ends_it_with_78(
    mutual: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    (certificate, _), (_, key) = authority.issue("one", "one"), authority.issue("two", "two")
    kafka = access(mutual, authority, certificate=certificate, key=key)
    receiver = Receiver("forward", KafkaSettings(), tmp_path, {"kafka": kafka})
    receiver.spawn()
    assert await receiver.ended() == 78
    assert receiver.said().strip().endswith(f"KAFKA__KEY {key} does not belong to KAFKA__CERTIFICATE {certificate}")
