"""The embedded broker, run as a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from headrace_cli.ground import CommandError
from headrace_cli.stack.broker import answers, reason
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure

from tests.contract.embedded import EmbeddedKafka
from tests.contract.processes import bytes_of, gone
from tests.contract.waiting import PATIENCE, wait_for

MIB = 1024 * 1024
pytestmark = pytest.mark.kafka


@pytest.mark.long
async def test_what_was_stored_survives_sigkill_and_a_change_of_port(own_kafka: EmbeddedKafka) -> None:
    before = own_kafka.bootstrap
    settings = KafkaSettings(bootstrap_servers=before)
    await ensure(settings, TopicSettings(events_partitions=1, segments_partitions=0))
    producer = AIOKafkaProducer(bootstrap_servers=before, enable_idempotence=True, acks="all")
    await producer.start()
    await producer.send_and_wait(settings.events_topic, b"kept", partition=0)
    await producer.stop()
    own_kafka.kill()
    assert not own_kafka.running
    own_kafka.start()
    assert own_kafka.bootstrap != before
    consumer = AIOKafkaConsumer(
        settings.events_topic, bootstrap_servers=own_kafka.bootstrap, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        assert (await consumer.getone()).value == b"kept"
    finally:
        await consumer.stop()


async def test_no_topic_is_made_by_asking_for_it(kafka: EmbeddedKafka) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap)
    await consumer.start()
    try:
        await consumer._client.force_metadata_update()
        assert "asked.for" not in await consumer.topics()
    finally:
        await consumer.stop()


@pytest.mark.long
def test_a_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")  # the user's, which knows ASCII only
    broker = EmbeddedKafka(tmp_path / "données \\ d'été=1 💾")
    broker.start()
    try:
        assert (broker.folder / "data" / "meta.properties").exists()
    finally:
        broker.stop()


def test_a_java_error_is_its_message() -> None:
    said = (
        'Exception in thread "main" java.lang.RuntimeException: wrapped\n\tat kafka.A.b(A.scala:1)\n'
        "Caused by: java.io.IOException: No space left on device\n\tat kafka.tools.StorageTool.main\n\t... 3 more\n"
    )
    assert reason(said) == "Caused by: java.io.IOException: No space left on device"
    assert reason("") == ""


@pytest.mark.long
async def test_retention_by_size_keeps_its_folder_small(tmp_path: Path) -> None:
    small = {"log.segment.bytes": str(MIB), "log.retention.check.interval.ms": "500"}
    broker = EmbeddedKafka(tmp_path / "kafka", properties=small)
    broker.start()
    try:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap)
        await ensure(settings, TopicSettings(events_partitions=1, segments_partitions=0, retention_bytes=MIB))
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=MIB)
        await producer.start()
        for _ in range(40):
            await producer.send_and_wait(settings.events_topic, os.urandom(MIB // 2), partition=0)
        await producer.stop()
        (folder,) = broker.folder.glob("data/headrace.events-0")
        # what retention keeps, the segment that is written to, and one that is about to go
        wait_for(lambda: bytes_of(folder.glob("*.log")) <= 3 * MIB, "retention")
    finally:
        broker.stop()


def test_a_broker_that_cannot_start_is_noticed_at_once(tmp_path: Path) -> None:
    broker = EmbeddedKafka(tmp_path / "kafka", properties={"num.io.threads": "none"})
    with pytest.raises(CommandError, match=r"could not be formatted|stopped at its start"):
        broker.start(timeout=PATIENCE)
    assert not broker.running


@pytest.mark.long
def test_another_port_is_chosen_when_one_s_own_choice_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        real = iter([taken])
        from tests.contract import embedded as module

        free = module.free_port
        monkeypatch.setattr(module, "free_port", lambda: next(real, None) or free())
        broker = EmbeddedKafka(tmp_path / "kafka")
        try:
            broker.start()
            assert broker.port != taken
            wait_for(lambda: answers("127.0.0.1", broker.port), "an answer within its second")
        finally:
            broker.stop()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tests.contract.embedded import EmbeddedKafka;"
        "k = EmbeddedKafka(Path(sys.argv[1])); k.start(); print(k.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "kafka")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: gone([pid]), "the broker's end")


def test_answers_wants_a_broker(kafka: EmbeddedKafka) -> None:
    wait_for(lambda: answers("127.0.0.1", kafka.port), "an answer within its second")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert not answers("127.0.0.1", silent.getsockname()[1], 0.2)
        silent.listen()  # it accepts a connection and stays silent
        assert not answers("127.0.0.1", silent.getsockname()[1], 0.2)
