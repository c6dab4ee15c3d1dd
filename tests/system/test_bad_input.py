"""Hostile bytes over sockets: closed or quarantined, in bounded memory, told once, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import uuid
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgpack
import psutil
import pytest
from headrace_common.operations.settings import KIB, MIB

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import now, own_topics, quarantined, reassembled
from tests.contract.waiting import PATIENCE, until
from tests.system.conftest import Broker
from tests.system.memory import Memory

pytestmark = pytest.mark.kafka

FORWARD = ForwardDialect()
FRAME_BYTES = 4 * MIB
INFLATED_BYTES = 8 * MIB
PROCESS_BUDGET = 48 * MIB
SLACK = 32 * MIB
"""Beyond the budget: rounds of 1 MiB in each of the four partitions, what the sockets hand over, the allocator's own."""

LIMITS = {
    "frame_bytes": FRAME_BYTES,
    "inflated_bytes": INFLATED_BYTES,
    "connection_budget": PROCESS_BUDGET // 2,
    "process_budget": PROCESS_BUDGET,
}
ATTACKERS = 12


@pytest.fixture(scope="module")
def receiver(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """One for all tests that ask no log lines: those are limited, so who wants to see each has a receiver of its own."""
    folder: Path = tmp_path_factory.mktemp("bad-input")
    running = Receiver("forward", own_topics(broker.bootstrap), folder, {"limits": LIMITS})
    running.spawn()
    now(running.listens())
    yield running
    running.stop()


@asynccontextmanager
async def watched(receiver: Receiver, grows: int) -> AsyncIterator[None]:
    """Meanwhile another client is served without a break, and the receiver takes at most `grows` bytes more."""
    enough = asyncio.Event()

    async def undisturbed(client: ContractClient) -> None:
        while not enough.is_set():
            await client.receives(await client.send(values(20)))

    async with await ContractClient.connect(FORWARD, receiver.address) as other:
        await other.receives(await other.send(values(20)))
        with Memory(receiver.pid) as memory:
            bystander = asyncio.create_task(undisturbed(other))
            try:
                yield
            finally:
                enough.set()
                await bystander
        await other.receives(await other.send(values(20)))
    print(f"memory: {memory.before} at first, {memory.grown} more at most, {len(memory.samples)} samples")
    assert memory.grown <= grows
    assert receiver.exit_status() is None
    assert (await receiver.get("/livez"))[0] == 200


def told(receiver: Receiver, client: ContractClient) -> dict:
    """The one line about this client."""
    (line,) = [line for line in receiver.lines("protocol error") if line["peer"] == client.local]
    return line


def bomb(size: int, text: bytes = b"\0") -> bytes:
    """`size` bytes of `text` again and again, as gzip, made without holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = text * (MIB // len(text))
    return b"".join([*(packer.compress(piece) for _ in range(size // len(piece))), packer.flush()])


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(lambda: bomb(INFLATED_BYTES - MIB), "fold", id="by its ratio"),
        pytest.param(lambda: bomb(512 * MIB), "beyond", id="by far"),
        pytest.param(lambda: bomb(2 * INFLATED_BYTES, random.Random(1).randbytes(2 * KIB)), "beyond", id="by its size"),
        pytest.param(lambda: bomb(4 * MIB) * 100, "beyond", id="in many members"),
    ],
)
async def test_gzip_bombs(receiver: Receiver, made: Callable[[], bytes], says: str) -> None:
    """Quarantined as they came and acknowledged: a resend would be no better. Many at once stay within the budget."""
    body = made()
    clients = [await ContractClient.connect(FORWARD, receiver.address) for _ in range(ATTACKERS)]
    mark = uuid.uuid4().hex
    async with watched(receiver, PROCESS_BUDGET + SLACK):
        for client in clients:
            await client.send_frame(client.conversation.packed(body, compressed="gzip", mark=mark))
        for client in clients:
            await client.receives(0)
    for client in clients:
        await client.receives(await client.send(values(1)))
        await client.__aexit__()
    rejects = await quarantined(receiver.kafka, mark)
    assert len(reassembled(rejects)) == ATTACKERS
    for record in rejects:
        assert record["reason"] == "inflated_limit"
    for raw in reassembled(rejects).values():
        assert msgpack.unpackb(raw)[1] == body
    assert all(says in record["detail"] for record in rejects)


HUGE = b"\xff\xff\xff\xff"


ANNOUNCED = {
    "elements of a message": (b"\xdd" + HUGE, 0),
    "entries": (b"\x93\xa3tag\xdd" + HUGE, 0),
    "bytes of a str payload": (b"\xc0\x93\xa3tag\xdb" + HUGE, 1),
    "bytes of a bin payload": (b"\xc0\xc0\x93\xa3tag\xc6" + HUGE, 2),
}


async def test_a_length_of_four_gigabytes_is_refused_when_it_is_announced(start) -> None:
    receiver = await start(limits=LIMITS)
    async with watched(receiver, 8 * MIB):
        for name, (data, offset) in ANNOUNCED.items():
            async with await ContractClient.connect(FORWARD, receiver.address) as client:
                await client.write(data + b"\xa1x" * 100)
                await client.sees_end()
                line = told(receiver, client)
            assert (name, line["offset"], line["limit"]) == (name, offset, "LIMITS__FRAME_BYTES")


UNANNOUNCED = {
    "entries of a record": b"\x93\xa3tag\x01\xdf" + HUGE,
    "elements of a value": b"\x93\xa3tag\x01\x81\xa1k\xdd" + HUGE,
    "entries of a record in a list": b"\x93\xa3tag\x91\x92\x01\xdf" + HUGE,
    "entries of the option": b"\x94\xa3tag\x01\x80\xdf" + HUGE,
    "bytes where a message should be": b"\xdb" + HUGE,
    "bytes of the tag": b"\x93\xdb" + HUGE,
}


async def test_a_length_of_four_gigabytes_costs_only_what_is_sent(start) -> None:
    receiver = await start(limits=LIMITS)
    async with watched(receiver, 8 * MIB):
        for name, data in UNANNOUNCED.items():
            async with await ContractClient.connect(FORWARD, receiver.address) as client:
                await client.write(data + b"\xa1x" * 100)
                client.finish()
                await client.sees_end()
                assert (name, client.acknowledged, told(receiver, client)["offset"]) == (name, [], 0)


async def test_lengths_that_promise_much_inside_a_payload(receiver: Receiver) -> None:
    """The message is sound: its payload goes to quarantine."""
    payloads = [
        b"\x92\x01\xdf" + HUGE,
        b"\xdd" + HUGE,
        b"\x92\x01\x81\xa1k\xdd" + HUGE,
        b"\x92\x01\x81\xa1k\xdb" + HUGE,
    ]
    async with watched(receiver, 8 * MIB), await ContractClient.connect(FORWARD, receiver.address) as client:
        for payload in payloads:
            number = await client.send_frame(client.conversation.packed(payload + b"four gigabytes"))
            await client.receives(number)
    rejects = await quarantined(receiver.kafka, "four gigabytes")
    assert sorted(reassembled(rejects).values()) == sorted(payload + b"four gigabytes" for payload in payloads)
    assert {record["reason"] for record in rejects} == {"bad_encoding"}


async def test_deep_nesting_in_a_payload(receiver: Receiver) -> None:
    deep = b"\x92\x01\x81\xa4deep" + b"\x91" * 10_000 + b"\xc0"
    maps = b"\x92\x01\x81\xa4deep" + b"\x81\xa1k" * 10_000 + b"\xc0"
    async with watched(receiver, 16 * MIB), await ContractClient.connect(FORWARD, receiver.address) as client:
        for payload in (deep, maps):
            await client.receives(await client.send_frame(client.conversation.packed(payload)))
    rejects = await quarantined(receiver.kafka, "deep")
    assert sorted(reassembled(rejects).values()) == sorted([deep, maps])
    assert {record["reason"] for record in rejects} <= {"bad_encoding", "too_deep"}


NESTED = {
    "in a record": b"\x93\xa3tag\x01\x81\xa1k" + b"\x91" * 10_000 + b"\xc0\x80",
    "in an entry": b"\x93\xa3tag\x91\x92\x01\x81\xa1k" + b"\x91" * 10_000 + b"\xc0\x80",
    "in the option": b"\x94\xa3tag\x01\x80" + b"\x81\xa1k" * 10_000 + b"\xc0",
    "of messages": b"\x91" * 10_000,
}


@pytest.mark.long
async def test_deep_nesting_in_the_stream(start) -> None:
    """Where msgpack itself gives up, nobody knows where the next message begins."""
    receiver = await start(limits=LIMITS)
    async with watched(receiver, 16 * MIB):
        for name, data in NESTED.items():
            async with await ContractClient.connect(FORWARD, receiver.address) as client:
                await client.write(data)
                await client.sees_end()
                assert (name, client.acknowledged, told(receiver, client)["offset"]) == (name, [], 0)


async def flood(client: ContractClient, size: int) -> None:
    """Small elements of one message, without end."""
    piece = (b"\x81\xa1k\xb0" + b"x" * 16) * (4 * KIB)
    with contextlib.suppress(ConnectionError):
        await client.write(b"\x93\xa3tag\xdd" + FRAME_BYTES.to_bytes(4, "big"))
        for _ in range(size // len(piece)):
            if client.closed:
                return
            await client.write(piece)


@pytest.mark.long
@pytest.mark.parametrize(("attackers", "grows"), [(1, 3 * FRAME_BYTES + 8 * MIB), (ATTACKERS, PROCESS_BUDGET + SLACK)])
async def test_frames_above_the_limit_that_nobody_announced(start, attackers: int, grows: int) -> None:
    """Read up to the limit, then closed; of many at once only the oldest is read on when the budget is used up."""
    receiver = await start(limits=LIMITS)
    clients = [await ContractClient.connect(FORWARD, receiver.address) for _ in range(attackers)]
    async with watched(receiver, grows):
        await asyncio.wait_for(asyncio.gather(*(flood(client, 8 * FRAME_BYTES) for client in clients)), PATIENCE)
        for client in clients:
            await client.sees_end()
            assert client.acknowledged == []
    lines = receiver.lines("protocol error")
    assert 1 <= len(lines) <= attackers  # ten within ten seconds
    assert {(line["offset"], line["limit"]) for line in lines} == {(0, "LIMITS__FRAME_BYTES")}
    assert {line["peer"] for line in lines} <= {client.local for client in clients}
    for client in clients:
        await client.__aexit__()


CROWD = 400
BEGINNING = b"\x92\xa3tag\xc6" + (3 * MIB).to_bytes(4, "big") + bytes(MIB)


@pytest.mark.long
async def test_hundreds_that_bring_beginnings_at_the_same_moment(start) -> None:
    """None of them brings a message, or what one connection may hold; together they would be ten budgets."""
    receiver = await start(limits=LIMITS)
    writers = [(await asyncio.open_connection(*receiver.address))[1] for _ in range(CROWD)]
    try:
        async with watched(receiver, PROCESS_BUDGET // 2 + SLACK):
            for writer in writers[:]:
                writer.write(BEGINNING)
                writers.append((await asyncio.open_connection(*receiver.address))[1])  # and one that comes meanwhile
                writers[-1].write(BEGINNING)
            await asyncio.sleep(5)
    finally:
        for writer in writers:
            writer.transport.abort()


TINY = {
    "records": b"\x92\x01\x80" * 100_000,
    "rejects": b"\xc0" * 100_000,
}


@pytest.mark.long
@pytest.mark.parametrize("entries", TINY.values(), ids=TINY)
async def test_tiny_entries_cost_no_more_than_the_budget(broker: Broker, start, entries: bytes) -> None:
    """What is noted about each is counted too. Kafka stands still, so that everything waits."""
    receiver = await start(limits=LIMITS)
    clients = [await ContractClient.connect(FORWARD, receiver.address) for _ in range(ATTACKERS)]
    message = b"\x92\xa3tag\xdd" + (100_000).to_bytes(4, "big") + entries

    async def send(client: ContractClient) -> None:
        for _ in range(PROCESS_BUDGET // len(message) // ATTACKERS + 1):
            await client.write(message)

    with Memory(receiver.pid) as memory, stopped(broker.pid):
        sending = [asyncio.create_task(send(client)) for client in clients]
        await until(lambda: _used_up(receiver), "the budget for what arrives is used up")
        await until(lambda: _at_rest(receiver), "all that can be built is built")
        for task in sending:
            task.cancel()
        receiver.kill()
    print(f"memory: {memory.before} at first, {memory.grown} more at most, {len(memory.samples)} samples")
    assert memory.grown <= PROCESS_BUDGET + 2 * SLACK  # as records they are five times as large as in a batch
    for client in clients:
        await client.__aexit__()


async def _at_rest(receiver: Receiver) -> bool:
    """Whether it uses next to no processor: it waits for Kafka and for nothing else."""
    process = psutil.Process(receiver.pid)
    before = process.cpu_times()
    await asyncio.sleep(0.5)
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system < 0.05


@pytest.mark.long
async def test_a_message_of_a_million_elements(start) -> None:
    """No client sends that, and each would cost a step: refused when it is announced."""
    receiver = await start(limits=LIMITS)
    async with watched(receiver, 8 * MIB), await ContractClient.connect(FORWARD, receiver.address) as client:
        await client.write(b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\xa3tag\x01\x80")
        await client.sees_end()
        assert told(receiver, client)["offset"] == 0


async def _used_up(receiver: Receiver) -> bool:
    return await receiver.metric("budget_used_bytes") >= PROCESS_BUDGET // 2


async def test_frames_that_are_nearly_right(receiver: Receiver) -> None:
    """A bit here and there: acknowledged (understood or in quarantine), closed, or it waits for more; nothing else."""
    rolls = random.Random(7)
    closed = await receiver.metric("connections_closed_total", why="protocol_error")
    acknowledged = 0
    async with watched(receiver, 32 * MIB):
        for _ in range(150):
            async with await ContractClient.connect(FORWARD, receiver.address) as client:
                client.conversation.receive = lambda data: [0] if data.startswith(b"\x81\xa3ack") else 1 / 0
                frame = bytearray(client.conversation.frame(values(rolls.randint(1, 5))))
                if rolls.random() < 0.3:
                    frame = bytearray(client.conversation.packed(gzip.compress(bytes(frame)), compressed="gzip"))
                for _ in range(rolls.randint(1, 4)):
                    frame[rolls.randrange(len(frame))] = rolls.randrange(256)
                await client.write(bytes(frame))
                client.finish()
                await client.sees_end()
                acknowledged += len(client.acknowledged)
    assert acknowledged
    assert await receiver.metric("connections_closed_total", why="protocol_error") > closed
    assert await receiver.metric("events_quarantined_total", reason="internal") == 0


async def test_random_bytes(receiver: Receiver) -> None:
    rolls = random.Random(11)
    async with watched(receiver, 16 * MIB):
        for _ in range(150):
            async with await ContractClient.connect(FORWARD, receiver.address) as client:
                await client.write(rolls.randbytes(rolls.choice((1, 10, 1000, 100_000))))
                client.finish()
                await client.sees_end()
                assert client.acknowledged == []
