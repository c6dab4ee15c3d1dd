"""The sockets that receive from devices. ZeroMQ connects, and reconnects; an endpoint that is silent is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

import zmq
from aiokafka.errors import KafkaError
from headrace_common.connection.messages import MessageConnection
from headrace_common.kafka.client import explain
from headrace_common.operations.errors import ConfigError, DeliveryError
from headrace_common.operations.tasks import own_name, stood_still
from headrace_common.service.parts import Runtime
from headrace_common.session.interface import Peer

from headrace_logjam.access import Context, CurvePair
from headrace_logjam.devices.consumer import ConsumerSession, TopicChoice
from headrace_logjam.devices.gaps import Notice, NumbersBehind
from headrace_logjam.devices.held import StoredNumbers
from headrace_logjam.devices.positions import DevicePosition, Positions
from headrace_logjam.devices.tail import read_tail
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers import monitor
from headrace_logjam.reading import ALIVE, ReadSocket
from headrace_logjam.session import limits_of
from headrace_logjam.settings import LogjamSettings, words
from headrace_logjam.wire import HEARTBEAT

SILENCE: Final = 30.0
"""Seconds without a message, while the socket is read, after which an endpoint is replaced. A device speaks every 5 s."""

LOOK: Final = 1.0
RECONNECT_MS: Final = 100
LAST_RECONNECT_MS: Final = 10_000


SAVE: Final = 1.0
"""Seconds between two looks whether positions have changed, unless a device is heard for the first time."""

PAUSE: Final = 0.02
"""Seconds between two looks at least: a peer may invent devices."""


def name_of(settings: LogjamSettings) -> str:
    """Returns the name of this consumer in markers and positions."""
    return settings.logjam.consumer or own_name()


def chosen_of(settings: LogjamSettings) -> TopicChoice:
    """Returns which of the published messages are taken."""
    topics = words(settings.logjam.topics)
    return TopicChoice(topics, whole=not (topics or words(settings.logjam.app_envs)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Subscription:
    """One endpoint: all that its devices publish, or the topics that the settings choose."""

    def __init__(
        self,
        runtime: Runtime[LogjamSettings],
        metrics: LogjamMetrics,
        context: Context,
        keys: CurvePair,
        first: Callable[[], None],
        name: str,
        address: str,
    ) -> None:
        """`keys`: ours, where the device speaks CURVE. `first`: see `ConsumerSession`."""
        self._runtime = runtime
        self._metrics = metrics
        self._context = context
        self._keys = keys
        self._first = first
        self.name = name
        self._address = address
        self._read = ReadSocket(routed=False, reads=self._reads)
        self._socket: zmq.Socket[bytes] | None = None
        self._session: ConsumerSession | None = None
        self._connection: MessageConnection | None = None
        self._monitor: zmq.Socket[bytes] | None = None

    def positions(self) -> Mapping[int, DevicePosition] | None:
        """Returns `ConsumerSession.positions`. None: it was not started."""
        return self._session.positions() if self._session is not None else None

    def _hears_first(self) -> None:
        """Reads no more until positions are written: messages wait in the session, where no budget counts them."""
        self._read.hold(True)
        self._first()

    def written(self) -> None:
        """Calls `ConsumerSession.written` if messages wait for it."""
        if self._read.held and self._session is not None and self._connection is not None:
            self._session.written()
            self._read.hold(False)
            self._connection.received([])

    def is_stored(self) -> bool:
        """Returns whether it was started, and all that it has received is stored."""
        return self._session is not None and self._session.status().idle

    def connect(self) -> None:
        """Connects. ZeroMQ keeps messages until `start`. Raises `ConfigError` for an invalid address."""
        settings = self._runtime.settings
        limits = settings.limits
        made = self._socket = self._context.socket(zmq.SUB)
        for option, value in (
            (zmq.MAXMSGSIZE, limits.frame_bytes),
            (zmq.RCVHWM, settings.logjam.endpoint_messages),
            (zmq.LINGER, 0),
            *ALIVE.items(),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, LAST_RECONNECT_MS),
        ):
            made.setsockopt(option, value)
        server = settings.logjam.curve_devices.get(self.name)
        if server is not None:
            self._keys.ask(made, server)
        app_envs = words(settings.logjam.app_envs)
        for prefix in (*app_envs, HEARTBEAT) if app_envs else (b"",):
            made.setsockopt(zmq.SUBSCRIBE, prefix)
        self._monitor = monitor(self._context, made, f"endpoint.{self.name}", zmq.EVENT_DISCONNECTED)
        try:
            made.connect(self._address)
        except zmq.ZMQError as error:
            raise ConfigError(f"LOGJAM__ENDPOINTS {self.name}: {self._address}: {error}") from error

    def start(self, known: Mapping[int, DevicePosition], held: Mapping[int, NumbersBehind]) -> None:
        """Begins to read. `known`: this consumer's positions; `held`: the numbers that it has stored after these."""
        runtime, settings, made = self._runtime, self._runtime.settings, self._socket
        assert made is not None
        lost = self._metrics.lost_messages.labels(self.name)
        for notice in Notice:  # exported with 0: an alert sees the first one
            self._metrics.notices.labels(notice.value, self.name)
        self._session = session = ConsumerSession(
            self.name,
            name_of(settings),
            limits_of(settings.limits),
            self._noticed,
            lost.inc,
            known,
            chosen_of(settings),
            held,
            self._hears_first,
            now_ms=_now_ms,
        )
        session.resume(_now_ms())
        self._connection = connection = MessageConnection(
            runtime.receiver, Peer(self._address, 0, self.name), session, self._read
        )
        connection.received([])
        self._read.open(made, connection)
        runtime.tasks.start(self._watch(made, connection, session), f"endpoint {self.name}")

    def end(self) -> None:
        """Closes the socket."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        self._read.end()
        if self._socket is not None:
            self._socket.close()

    def _reads(self, messages: int) -> None:
        session, connection = self._session, self._connection
        if session is not None and connection is not None:
            session.read(ended=self._disconnected(), empty=not messages and not connection.is_behind())

    def _disconnected(self) -> bool:
        """Returns whether a connection has ended since the last call."""
        ended = False
        with contextlib.suppress(zmq.Again):
            while self._monitor is not None:
                self._monitor.recv_multipart(zmq.NOBLOCK)
                ended = True
        return ended

    async def _watch(self, made: zmq.Socket[bytes], connection: MessageConnection, session: ConsumerSession) -> None:
        """Connects again after a silence, until the connection has ended."""
        clock = asyncio.get_running_loop().time
        self._read.last = clock()
        while True:
            looked = clock()
            try:
                await asyncio.wait_for(connection.closed.wait(), LOOK)
            except TimeoutError:
                pass
            else:
                return
            if not self._read.reading or stood_still(clock(), looked + LOOK):
                self._read.last = clock()  # this process does not read
            elif clock() - self._read.last >= SILENCE:
                self._runtime.receiver.limited.warning("endpoint is silent", endpoint=self.name, address=self._address)
                made.disconnect(self._address)
                session.read(ended=True, empty=False)
                made.connect(self._address)
                self._read.last = clock()

    def _noticed(self, notice: Notice, device: int) -> None:
        self._metrics.notices.labels(notice.value, self.name).inc()
        if notice is Notice.DOUBLED:
            self._runtime.receiver.limited.warning("two devices use one number", endpoint=self.name, device=device)


class Subscriptions:
    """All endpoints, and this consumer's positions in each."""

    def __init__(
        self, runtime: Runtime[LogjamSettings], metrics: LogjamMetrics, context: Context, keys: CurvePair
    ) -> None:
        self._runtime = runtime
        settings = runtime.settings
        self._first = asyncio.Event()  # a device was heard for the first time
        endpoints = settings.logjam.endpoints.items()
        self._all = [
            Subscription(runtime, metrics, context, keys, self._first.set, *endpoint) for endpoint in endpoints
        ]
        self._positions = Positions(settings.kafka, name_of(settings), runtime.receiver.limited)
        self._found: dict[str, Mapping[int, DevicePosition]] = {}
        self._looked = True
        """Whether the numbers that are stored after the positions are known."""

    async def start(self) -> None:
        """Connects, and reads this consumer's positions. Kafka answers already. Raises `ConfigError`."""
        if not self._all:
            return
        if not chosen_of(self._runtime.settings).whole:
            self._runtime.log.warning("gaps are not counted", why="LOGJAM__APP_ENVS or LOGJAM__TOPICS chooses messages")
        for each in self._all:
            each.connect()
        self._found.update(await self._positions.load())
        held: Mapping[str, StoredNumbers] = {}
        if self._positions.exact:
            await self._positions.save(self._found)  # they are not exact any more, once something is stored after them
        else:
            held = await self._held()
        for each in self._all:
            behind = held[each.name].behind() if each.name in held else {}
            each.start(self._found.get(each.name, {}), behind)
        self._runtime.tasks.start(self._keep(), "positions")

    async def _held(self) -> Mapping[str, StoredNumbers]:
        """Returns the numbers stored after the positions before a kill. Those that Kafka does not tell are called lost."""
        settings = self._runtime.settings
        try:
            found = await read_tail(settings.kafka, name_of(settings), self._found)
        except (KafkaError, DeliveryError, OSError) as error:
            self._runtime.log.warning("last stored numbers unknown", problem=explain(error))
            self._looked = False
            return {}
        self._looked = found.whole
        return found.held

    async def _keep(self) -> None:
        while True:
            self._first.clear()
            await self._save()
            if not self._first.is_set():
                for each in self._all:
                    each.written()
            await asyncio.sleep(PAUSE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._first.wait(), SAVE)

    async def _save(self, *, exact: bool = False) -> None:
        stand = {each.name: at for each in self._all if (at := each.positions()) is not None}
        await self._positions.save(self._found | stand, exact=exact)

    async def stop(self) -> None:
        """Writes down what was stored: nothing is pending."""
        for each in self._all:
            each.end()
        if any(each.positions() is not None for each in self._all):
            await self._save(exact=self._looked and all(each.is_stored() for each in self._all))
        await self._positions.close()
