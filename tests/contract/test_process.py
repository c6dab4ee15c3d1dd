"""The process: its settings, its health, its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.metrics import LIMITS, ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.protocol import installed

from tests.contract.dialect import ContractClient, Dialect, Values, values
from tests.contract.embedded import EmbeddedKafka
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import HOST, Receiver, Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import events, own_topics
from tests.contract.waiting import until
from tests.system.buggy import DEADLY

pytestmark = [pytest.mark.kafka, pytest.mark.shared]


OWN_LIMITS = {
    "forward": {"FORWARD__CHUNK_BYTES", "FORWARD__HANDSHAKE_BYTES"},
    "lumberjack": {"LUMBERJACK__PAIRS", "LUMBERJACK__WINDOW_EVENTS"},
    "segment": {"SEGMENT__SEGMENTS", "SEGMENT__WRITERS"},
}
"""What a client may hit in that protocol alone."""


async def test_health_and_metrics(dialect: Dialect, receiver: Receiver) -> None:
    assert await receiver.get("/livez") == (200, "ok\n")
    assert await receiver.get("/readyz") == (200, "ok\n")
    _, text = await receiver.get("/metrics")
    own = [row for protocol in installed() if protocol.name == dialect.name for row in protocol.own_metrics()]
    declared = {row.name for row in (*ReceiverMetrics().table(), *own)}
    assert set(re.findall(r"^# TYPE (headrace_\w+) ", text, re.MULTILINE)) == declared
    limits = set(re.findall(r'^headrace_limit_hits_total{limit="(\w+)"}', text, re.MULTILINE))
    assert limits >= {*LIMITS, *OWN_LIMITS.get(dialect.name, ())}
    before = {
        name: await receiver.metric(name)
        for name in ("events_stored_total", "events_acknowledgeable_total", "received_bytes_total")
    }
    async with await ContractClient.connect(dialect, receiver.address) as client:
        await client.receives(await client.send(values(7)))
        assert await receiver.metric("connections") >= 1
    after = {name: await receiver.metric(name) for name in before}
    assert after["events_stored_total"] == before["events_stored_total"] + 7
    assert after["events_acknowledgeable_total"] == before["events_acknowledgeable_total"] + 7
    assert after["received_bytes_total"] > before["received_bytes_total"]
    for held in ("frames_pending", "budget_used_bytes"):
        await receiver.shows(0, held)
    _, text = await receiver.get("/metrics")
    sent = re.findall(r'^headrace_top_source_events{source="[^"]+"} (\d+)', text, re.MULTILINE)
    assert sum(map(int, sent)) >= 7


@contextlib.asynccontextmanager
async def told_to_stop(
    receiver: Receiver, client: ContractClient, kafka: EmbeddedKafka, frame: Values
) -> AsyncIterator[int]:
    """In the block Kafka stands still, and a frame of the client waits for it; its number."""
    await client.receives(await client.send(values(1)))
    with stopped(kafka.pid):
        number = await client.send(frame)
        await until(lambda: receiver.metric("frames_pending"), "the frame waits for Kafka")
        receiver.signal(signal.SIGTERM)
        yield number


async def test_sigterm_acknowledges_what_is_pending_and_ends_the_others(
    dialect: Dialect, start: Receivers, kafka: EmbeddedKafka
) -> None:
    receiver, pending = await start(), values(20)
    async with (
        await ContractClient.connect(dialect, receiver.address) as idle,
        await ContractClient.connect(dialect, receiver.address) as client,
        await ContractClient.connect(dialect, receiver.address) as halfway,
    ):
        await halfway.write(halfway.conversation.frame(values(3))[:-5])
        async with told_to_stop(receiver, client, kafka, pending) as number:
            await until(lambda: receiver.lines("stopping"), "it stops")
            status, text = await receiver.get("/readyz")
            assert (status, "draining" in text) == (503, True)
            assert (await receiver.get("/livez"))[0] == 200
            await client.hears_nothing(0.3)
            if dialect.connection:
                await idle.sees_end()
                await until(lambda: _refused(receiver), "nobody can connect")
            assert receiver.exit_status() is None
        await client.receives(number)
        for each in (client, halfway) if dialect.connection else ():
            await each.sees_end()
        assert idle.acknowledged == halfway.acknowledged == []
    assert await receiver.ended() == 0
    assert receiver.lines("stopped")
    assert receiver.lines("connections cut") == []
    assert len(await events(receiver.kafka, pending[0]["mark"])) == len(pending)


@pytest.mark.connection
async def test_who_connected_before_it_stopped_is_served(dialect: Dialect, start: Receivers) -> None:
    """The kernel accepts for a process that stands still: these clients believe that they are connected, and have sent."""
    receiver = await start()
    async with contextlib.AsyncExitStack() as stack:
        with stopped(receiver.pid):
            clients = [
                await stack.enter_async_context(await ContractClient.connect(dialect, receiver.address))
                for _ in range(30)
            ]
            numbers = [await client.send(values(2)) for client in clients]
            receiver.signal(signal.SIGTERM)
        for client, number in zip(clients, numbers, strict=True):
            await client.receives(number)
    assert await receiver.ended() == 0
    assert receiver.lines("connections cut") == []


async def _refused(receiver: Receiver) -> bool:
    try:
        _, writer = await asyncio.open_connection(*receiver.address)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # the port was closed while we connected
        return False
    writer.close()
    return False


@pytest.mark.connection
async def test_the_end_acknowledges_nothing_that_is_not_stored(
    dialect: Dialect, start: Receivers, kafka: EmbeddedKafka
) -> None:
    receiver = await start(limits={"drain_time": 1})
    async with await ContractClient.connect(dialect, receiver.address) as client:
        async with told_to_stop(receiver, client, kafka, values(2)):
            assert await receiver.ended() == 0
        await client.sees_end()
        assert client.acknowledged == [0]
    (line,) = receiver.lines("connections cut")
    assert line["frames_not_acknowledged"] == 1


async def test_it_is_not_ready_before_its_topics_exist(dialect: Dialect, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    nowhere = KafkaSettings(
        bootstrap_servers=kafka.bootstrap, events_topic="there.is.none", quarantine_topic="nor.this"
    )
    with Receiver.of(dialect, nowhere, tmp_path) as receiver:
        receiver.spawn()
        await until(lambda: receiver.lines("kafka is not usable"), "it says what is wrong")
        receiver.ops = receiver.lines("starting")[-1]["ops"]
        status, text = await receiver.get("/readyz")
        assert (status, "there.is.none" in text) == (503, True)
        assert (await receiver.get("/livez"))[0] == 200
        assert await _refused(receiver)  # no client can come yet
        assert len(receiver.lines("kafka is not usable")) == 1
        receiver.signal(signal.SIGTERM)
        assert await receiver.ended() == 0


@pytest.mark.parametrize(
    ("section", "setting", "value", "says"),
    [
        ("limits", "frame_size", 5, "HEADRACE_LIMITS__FRAME_SIZE: there is no such setting"),
        ("listen", "port", None, "in use"),
        ("ops", "port", None, "in use"),
    ],
)
async def test_a_setting_that_cannot_be_is_said_in_one_line(
    dialect: Dialect, start: Receivers, section: str, setting: str, value: object, says: str
) -> None:
    with socket.create_server((HOST, 0)) as taken:
        receiver = start.make(**{section: {setting: value or taken.getsockname()[1]}})
        receiver.spawn()
        assert await receiver.ended() == EXIT_CONFIG
    (line,) = [line for line in receiver.log.read_text().splitlines() if not line.startswith("{")]
    assert line.startswith(f"python -m headrace_common {dialect.name}: ")
    assert says in line


async def test_a_task_that_ends_ends_the_service_which_says_why(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """A service of which a part has ended does not live on as half of one."""
    dialect = ForwardDialect()
    topics, drains = own_topics(kafka.bootstrap), {"limits": {"drain_time": 5}}
    with Receiver("forward", topics, tmp_path, drains, module="tests.system.buggy") as receiver:
        await receiver.start()
        frame = values(3)
        async with (
            await ContractClient.connect(dialect, receiver.address) as client,
            await ContractClient.connect(dialect, receiver.address) as other,
        ):
            await client.receives(await client.send(frame))
            await other.write(DEADLY)
            await client.sees_end()
            assert await receiver.ended() == 1
        (line,) = receiver.lines("a task has ended: the service stops")
        assert line["problem"] == "a task has ended: RuntimeError('a bug')"
        assert receiver.lines("stopped")
    assert len(await events(topics, frame[0]["mark"])) == len(frame)
