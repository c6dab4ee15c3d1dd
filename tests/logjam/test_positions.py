"""Where a consumer stands, as the service keeps it, and when an endpoint counts as silent, without Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
import zmq
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.service.parts import Runtime
from headrace_common.session.interface import Message
from headrace_logjam.access import CurvePair
from headrace_logjam.devices import endpoints, positions
from headrace_logjam.devices.endpoints import LOOK, SILENCE, Subscription, Subscriptions
from headrace_logjam.devices.positions import DevicePosition, Places, Positions, encode
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.settings import LogjamSettings
from structlog.testing import CapturingLogger

from tests.common.kafkaless import until
from tests.common.slowly import SlowLoop, slowly
from tests.common.test_messages import bench
from tests.driving import NOW_MS
from tests.logjam.driving import event

KNOWN = {"one": {7: DevicePosition(12, 1)}, "other": {8: DevicePosition(34, 2)}, "gone": {9: DevicePosition(56, 3)}}


class Kept:
    """The positions, as if Kafka had them."""

    exact = True

    def __init__(self) -> None:
        self.places: Places = KNOWN
        self.saved: list[tuple[Places, bool]] = []

    async def load(self) -> Places:
        return self.places

    async def save(self, places: Places, *, exact: bool = False) -> None:
        self.places = places
        self.saved.append((places, exact))

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def subscribed(addresses: dict[str, str]) -> AsyncIterator[tuple[Subscriptions, Kept]]:
    """The endpoints of a service, not started, and where it keeps its positions."""
    settings = LogjamSettings.model_validate({"logjam": {"endpoints": addresses, "consumer": "us"}})
    tasks = Tasks(lambda: None)
    runtime = Runtime(settings, bench().receiver, ReceiverMetrics(), structlog.get_logger(), tasks, list)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    subscriptions, kept = Subscriptions(runtime, LogjamMetrics(runtime.metrics), context, CurvePair.of("")), Kept()
    subscriptions._positions = cast("Any", kept)
    yield subscriptions, kept
    tasks.stopping()
    await subscriptions.stop()
    await tasks.stop()
    context.term()


async def test_a_start_that_fails_keeps_where_each_endpoint_stood() -> None:
    """An address that is none was added: with it mended, the others must not begin anew and report what they have stored."""
    addresses = {"new": "tcp://*:1", "one": "tcp://127.0.0.1:1", "other": "ipc:///none"}
    async with subscribed(addresses) as (subscriptions, kept):
        with pytest.raises(ConfigError, match="LOGJAM__ENDPOINTS new"):
            await subscriptions.start()
    assert kept.places == KNOWN


class Slow:
    """A consumer whose first commit is tried again for a while."""

    def __init__(self) -> None:
        self.again = asyncio.Event()
        self.taken: list[str] = []
        self._first = True

    def partitions_for_topic(self, topic: str) -> None: ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        first, self._first = self._first, False
        if first:
            await self.again.wait()
        self.taken += [each.metadata for each in offsets.values()]


async def test_what_is_written_late_does_not_overtake_what_is_written_last() -> None:
    """At the end two commits are on their way. The earlier one came last: the next start reported a gap of what was stored."""
    positions = Positions(KafkaSettings(), "us", RateLimited(structlog.get_logger()))
    slow = Slow()
    positions._consumer = cast("Any", slow)
    positions._partitions = [TopicPartition("events", 0)]
    places: list[Places] = [{"one": {7: DevicePosition(number, 1)}} for number in (1, 2)]
    saves = [asyncio.create_task(positions.save(each)) for each in places]
    for _ in range(5):
        await asyncio.sleep(0)
    slow.again.set()
    await asyncio.gather(*saves)
    assert slow.taken == [encode(each) for each in places]


class Committed:
    """What a group keeps."""

    def __init__(self) -> None:
        self.kept: dict[TopicPartition, OffsetAndMetadata] = {}
        self.there: set[int] | None = None  # the partitions of the topic, as far as the client knows

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.there

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.there is not None and any(at.partition not in self.there for at in offsets):
            raise UnknownTopicOrPartitionError
        self.kept |= offsets


async def test_positions_are_exact_only_after_an_end_in_order() -> None:
    """With the first word of the next process they are not, even if no number has changed until it is killed."""
    group, at = Committed(), TopicPartition("events", 0)

    def process() -> Positions:
        made = Positions(KafkaSettings(), "us", RateLimited(structlog.get_logger()))
        made._consumer = cast("Any", group)
        made._partitions = [at]
        made._written = {each: (kept.offset, kept.metadata) for each, kept in group.kept.items()}
        return made

    places: Places = {"one": {7: DevicePosition(5, 1)}}
    first = process()
    assert first.exact  # nothing was ever written
    await first.save(places)
    assert not process().exact
    await first.save(places, exact=True)
    second = process()
    assert second.exact
    await second.save(places)
    assert not process().exact
    assert group.kept[at].metadata == encode(places)


async def test_what_has_not_changed_is_written_again_before_a_broker_forgets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device out of reach for a week: at the next start it had joined, and what it had sent meanwhile was no loss."""
    group = Committed()
    positions = Positions(KafkaSettings(), "us", RateLimited(structlog.get_logger()))
    positions._consumer = cast("Any", group)
    positions._partitions = [TopicPartition("events", 0), TopicPartition("events", 1)]
    places: Places = {"one": {7: DevicePosition(5, 1)}}
    await positions.save(places)
    group.kept.clear()
    await positions.save(places)
    assert group.kept == {}
    positions._due = 0.0
    await positions.save(places)
    assert [each.metadata for each in group.kept.values()] == [encode(places)]


async def test_a_recreated_topic_may_have_fewer_partitions() -> None:
    """Positions in a partition that had gone were refused for ever, and with them those that were to be written with them."""
    group = Committed()
    positions = Positions(KafkaSettings(), "us", RateLimited(structlog.get_logger()))
    positions._consumer = cast("Any", group)
    positions._partitions = [TopicPartition("events", number) for number in range(16)]
    places: Places = {name: {7: DevicePosition(5, 1)} for name in ("one", "two", "three", "four")}
    await positions.save(places, exact=True)
    assert len(group.kept) > 1
    group.there, group.kept = {0}, {}
    positions._due = math.inf  # what has not changed is not due
    await positions.save(places, exact=True)
    assert {at: json.loads(kept.metadata).keys() for at, kept in group.kept.items()} == {
        TopicPartition("events", 0): places.keys()
    }
    assert positions.exact
    await positions.save(places)
    assert not positions.exact, "nothing that has gone counts"


@pytest.mark.parametrize(("exact", "looks"), [(True, 0), (False, 1)], ids=["ended in order", "killed"])
async def test_the_topics_are_looked_at_after_a_kill_alone(
    monkeypatch: pytest.MonkeyPatch, exact: bool, looks: int
) -> None:
    """Kafka that does not say what it holds stops nothing: the device is connected and read all the same."""
    looked = 0

    async def read_tail(*_: object) -> None:
        nonlocal looked
        looked += 1
        raise KafkaError("not now")

    monkeypatch.setattr(endpoints, "read_tail", read_tail)
    async with subscribed({"one": "tcp://127.0.0.1:1"}) as (subscriptions, kept):
        kept.exact = exact
        await subscriptions.start()
        assert looked == looks
        assert kept.saved == [(KNOWN, False)] * exact  # before anything is read: a kill may follow at once
    assert kept.saved[-1] == (KNOWN, exact)  # what is stored behind them may be asked once more


async def test_a_device_that_is_heard_for_the_first_time_is_written_down_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "SAVE", math.inf)
    async with subscribed({"one": "tcp://127.0.0.1:1"}) as (subscriptions, kept):
        await subscriptions.start()
        await until(lambda: bool(kept.saved))
        session = subscriptions._all[0]._session
        assert session is not None
        session.receive(Message(event({}, device=9, sequence=40)), NOW_MS)
        assert session._unwritten
        await until(lambda: not session._unwritten)
        assert kept.places["one"] == {7: DevicePosition(12, 1), 9: DevicePosition(39, NOW_MS)}


def test_a_process_that_stood_still_was_not_spoken_to() -> None:
    """What its devices have said meanwhile is in the system's buffers, and a new connection would lose it."""
    slowly(_stands_still)


async def _stands_still(loop: SlowLoop) -> None:
    said: list[tuple[str, float]] = []
    runtime: Any = SimpleNamespace(receiver=SimpleNamespace(limited=structlog.get_logger()))
    nothing: Any = None
    subscription = Subscription(runtime, nothing, nothing, nothing, lambda: None, "one", "tcp://127.0.0.1:9606")
    made: Any = SimpleNamespace(
        disconnect=lambda address: said.append(("disconnect", loop.now)),
        connect=lambda address: said.append(("connect", loop.now)),
    )
    connection: Any = SimpleNamespace(closed=asyncio.Event())
    session: Any = SimpleNamespace(read=lambda **more: None)
    watching = asyncio.create_task(subscription._watch(made, connection, session))
    await asyncio.sleep(5)
    loop.work(2 * SILENCE)
    stood_until = loop.now
    await asyncio.sleep(SILENCE + 3 * LOOK)
    assert [word for word, _ in said] == ["disconnect", "connect"]
    assert said[0][1] >= stood_until + SILENCE
    connection.closed.set()
    await watching


# In Kafka


NOT_COORDINATOR, LOADING = 16, 14
"""What a broker answers that has just started."""

PLACES = {"one": {7: DevicePosition(99, 1_700_000_000_123)}, "two": {7: DevicePosition(5, 8)}}


@pytest.mark.kafka
@pytest.mark.long
async def test_they_are_read_when_the_broker_has_loaded_them(
    topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an answer names no partition: it must not be taken for "nothing is kept"."""
    log = CapturingLogger()
    before = Positions(topics, "us", RateLimited(log))  # type: ignore[arg-type]
    assert await before.load() == {}
    await before.save(PLACES)
    await before.close()

    ask = AIOKafkaAdminClient._send_request
    errors = iter((NOT_COORDINATOR, LOADING))

    async def loading(self: AIOKafkaAdminClient, request: Any, *more: Any) -> Any:
        if isinstance(request, OffsetFetchRequest) and (error := next(errors, None)):
            return OffsetFetchResponse_v3(0, [], error)
        return await ask(self, request, *more)

    monkeypatch.setattr(AIOKafkaAdminClient, "_send_request", loading)
    monkeypatch.setattr(positions, "PAUSE", 0.01)
    after = Positions(topics, "us", RateLimited(log))  # type: ignore[arg-type]
    assert await after.load() == PLACES
    assert not after.exact
    await after.save(PLACES, exact=True)
    await after.close()
    third = Positions(topics, "us", RateLimited(log))  # type: ignore[arg-type]
    assert await third.load() == PLACES
    assert third.exact
    await third.close()
    assert [call.args for call in log.calls].count(("positions cannot be read",)) >= 2
