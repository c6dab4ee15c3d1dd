"""Kafka that asks for client certificates: a receiver, the topics job and the landing job; and what is said without one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.guarded import GuardedKafka
from tests.contract.receiver import Receiver, variables
from tests.contract.topic import events, own_topics
from tests.contract.waiting import BROKER_TIME, PATIENCE
from tests.forward.speaking import send
from tests.lake.lander import QUICK
from tests.scrapes import Page, firing

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PASSWORD = "not-a-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[GuardedKafka]:
    running = GuardedKafka(
        tmp_path_factory.mktemp("kafka"), "SSL", {"ssl.client.auth": "required"}, authority=authority
    )
    running.start(BROKER_TIME)
    yield running
    running.stop()


def access(mutual: GuardedKafka, authority: Authority, **other: Any) -> dict[str, Any]:
    """Settings for the listener that asks."""
    return {
        "bootstrap_servers": mutual.guarded,
        "security_protocol": "SSL",
        "ca": authority.file,
        **other,
    }


@pytest.mark.requires("promtool")
@pytest.mark.parametrize(("days", "found"), [(2, {"HeadraceKafkaCertificateExpires"}), (5, set())])
async def test_a_certificate_for_kafka_that_ends(
    days: int, found: set[str], mutual: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("client", f"ends-{days}", days=days)
    kafka = access(mutual, authority, certificate=certificate, key=key)
    with Receiver("forward", own_topics(mutual.bootstrap), tmp_path, {"kafka": kafka}) as receiver:
        await receiver.start()
        _, text = await receiver.get("/metrics")
        assert firing(["headrace-receivers"], "forward", [Page(text), Page(text)], tmp_path) == found


@pytest.mark.spark
async def test_an_event_from_a_client_to_the_lake_with_an_encrypted_key(
    mutual: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    plain = own_topics(mutual.bootstrap)
    certificate, key = authority.issue("client", "headrace", password=PASSWORD)
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    kafka = access(mutual, authority, certificate=certificate, key=key, key_password_file=password)
    with Receiver("forward", plain, tmp_path, {"kafka": kafka}) as receiver:
        await receiver.start()
        mark = uuid.uuid4().hex
        send(receiver.address, mark)
        assert len(await events(plain, mark)) == 1
        assert await receiver.metric("kafka_certificate_expiry_timestamp_seconds") > time.time()
        assert PASSWORD not in receiver.log.read_text()
    lake = {"path": tmp_path / "lake", "checkpoint": tmp_path / "checkpoint", "jars": jars("spark")}
    job = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "headrace_lake", "--once"],
        env={**variables(plain, {"kafka": kafka, "lake": lake}), **QUICK, "JAVA_HOME": str(java_home())},
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE,
    )
    assert job.returncode == 0, job.stderr
    assert PASSWORD not in job.stderr
    (row,) = query.run("select body from events", tmp_path / "lake")
    assert json.loads(row["body"])["mark"] == mark


async def test_without_a_certificate_it_waits_and_says_what_is_missing(
    mutual: GuardedKafka, authority: Authority, tmp_path: Path
) -> None:
    kafka = access(mutual, authority)
    with Receiver("forward", KafkaSettings(), tmp_path, {"kafka": kafka}) as receiver:
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
    assert receiver.lines()[-1]["event"].endswith(
        f"KAFKA__KEY {key} does not belong to KAFKA__CERTIFICATE {certificate}"
    )
