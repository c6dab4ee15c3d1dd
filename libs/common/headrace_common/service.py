"""A receiver's process: settings, listening, health, and the order in which it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

import uvloop

from headrace_common import __version__
from headrace_common.budget import Budget
from headrace_common.errors import EXIT_CONFIG, ConfigError
from headrace_common.event import Protocol
from headrace_common.log import Log, RateLimited, configure
from headrace_common.metrics import ReceiverMetrics
from headrace_common.ops import OpsServer
from headrace_common.publisher import Publisher
from headrace_common.server import Datagrams, Listener, SessionFactory, drain
from headrace_common.settings import ServiceSettings, parse_arguments
from headrace_common.shared import Shared
from headrace_common.tls import TlsContext
from headrace_common.turns import Turns

S = TypeVar("S", bound=ServiceSettings)

STALL_LOOK: Final = 0.25
STALL_WINDOW: Final = 60.0


Answer = Callable[[bytes], bytes]
"""What to answer a datagram; nothing: no answer."""


class Service:
    """One receiver: everything between its settings and its session factory. Implements `ops.Health`.

    `datagram` answers UDP on the same port, while the service is ready.
    """

    def __init__(
        self,
        protocol: Protocol,
        port: int,
        settings: ServiceSettings,
        new_session: SessionFactory,
        metrics: ReceiverMetrics,
        datagram: Answer | None = None,
    ) -> None:
        self._datagram = datagram
        self._protocol = protocol
        self._default_port = port
        self._settings = settings
        self._new_session = new_session
        self._log: Log = configure(settings.log, protocol.value)
        self._metrics = metrics
        self._draining = False
        self._listeners: list[Listener] = []
        self._address = ""
        self._stalls: list[tuple[float, float]] = []

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT, then drains. Raises `ConfigError` when it cannot start."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        settings = self._settings
        limits = settings.limits
        turns = Turns()
        self._budget = Budget(
            limits.process_budget, limits.connection_budget - limits.inflated_bytes, limits.inflated_bytes
        )
        self._publisher = Publisher(settings.kafka, turns, self._budget.growth, self._metrics, self._log)
        self._shared = Shared(
            self._publisher, self._budget, turns, limits, self._metrics, self._log, RateLimited(self._log)
        )
        tls = TlsContext(settings.tls, self._metrics, self._log) if settings.tls.cert is not None else None
        listen = settings.listen
        tcp = Listener(self._shared, tls, self._new_session, listen.proxies)
        udp: asyncio.DatagramTransport | None = None
        self._listeners.append(tcp)
        ops = OpsServer(settings.ops, self._protocol.value, self, self._metrics)
        stalls = asyncio.create_task(self._watch_loop())
        try:
            port = listen.port or self._default_port
            self._address = tcp.bind(listen.host, port)
            if listen.socket is not None:
                unix = Listener(self._shared, None, self._new_session)
                self._listeners.append(unix)
                unix.bind_unix(listen.socket)
            if self._datagram is not None:
                udp = await Datagrams.bind(listen.host, port, self._heartbeat)
            await ops.start()
            self._log.info("starting", version=__version__, ops=ops.port, kafka=settings.kafka.bootstrap_servers)
            if await _unless(stop, self._publisher.start()):
                for listener in self._listeners:
                    listener.start()
                also = {} if listen.socket is None else {"socket": str(listen.socket)}
                self._log.info("ready", listen=self._address, tls=tls is not None, **also)
                await stop.wait()
        finally:
            if udp is not None:
                udp.close()
            await self._stop()
            stalls.cancel()
            await ops.stop()

    async def _stop(self) -> None:
        """Readiness red, no new clients, no reading, Kafka's answers, last acknowledgements, half-close, close."""
        self._draining = True
        say = self._log.info if self._address else self._log.debug  # not beside the line that says why it cannot start
        say("stopping", connections=len(self._shared.connections))
        for listener in self._listeners:
            await listener.close()
        clock = asyncio.get_running_loop().time
        until = clock() + self._settings.limits.drain_time
        await drain(self._shared, self._settings.limits.drain_time)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._publisher.flush(), max(1.0, until - clock()))
        await self._publisher.close()
        say("stopped")

    def _heartbeat(self, data: bytes) -> bytes:
        """Who asks by datagram whether we live wants to know whether to send: red readiness is no answer."""
        assert self._datagram is not None
        return b"" if self.ready_problems() else self._datagram(data)

    async def _watch_loop(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            before = clock()
            await asyncio.sleep(STALL_LOOK)
            now = clock()
            self._stalls = [(at, late) for at, late in self._stalls if now - at < STALL_WINDOW]
            self._stalls.append((now, now - before - STALL_LOOK))

    # ops.Health

    def live_problems(self) -> list[str]:
        """The loop lives if this is called; the pumps and the listener say for themselves."""
        problems = [problem for listener in self._listeners for problem in listener.live_problems()]
        return self._publisher.live_problems() + problems

    def ready_problems(self) -> list[str]:
        """Draining, or Kafka is away."""
        return (["draining"] if self._draining else []) + self._publisher.ready_problems()

    def notes(self) -> list[str]:
        """Nothing so far."""
        return []

    def status(self) -> dict[str, str]:
        """For the status page."""
        return {
            "version": __version__,
            "listening on": self._address,
            "connections": str(len(self._shared.connections)),
            "bytes in flight": f"{self._budget.used:,} of {self._settings.limits.process_budget:,}",
            "kafka": self._settings.kafka.bootstrap_servers,
        }

    def collect(self) -> None:
        """Brings the gauges up to date."""
        self._metrics.connections.set(len(self._shared.connections))
        self._metrics.connections_paused.set(self._budget.paused)
        self._metrics.budget_used_bytes.set(self._budget.used)
        self._metrics.loop_stall_seconds.set(max((late for _, late in self._stalls), default=0.0))
        self._publisher.collect()


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Does `work` until `stop` is set. Whether it was finished; what it raises is raised."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        return False
    task.result()
    return True


def raise_file_limit() -> None:
    """Raises the soft limit of open files to the hard one: each connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def calm_collector() -> None:
    """Lets the cycle collector look seldom: events make no cycles, and looking for them cost a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def main(
    protocol: Protocol,
    port: int,
    settings_type: type[S],
    sessions: Callable[[S, ReceiverMetrics], SessionFactory],
    datagram: Callable[[S], Answer | None] | None = None,
) -> None:
    """Entry point of ``python -m headrace_<protocol>``. Exits 78 when the settings are at fault."""
    program = f"python -m headrace_{protocol.value}"
    description = f"Headrace receiver for {protocol.value}; acknowledges a client after Kafka has stored its events."
    try:
        settings = parse_arguments(settings_type, program, description)
        raise_file_limit()
        calm_collector()
        metrics = ReceiverMetrics()
        service = Service(
            protocol, port, settings, sessions(settings, metrics), metrics, datagram and datagram(settings)
        )
        uvloop.run(service.run())
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"{program}: {line}", file=sys.stderr)
        sys.exit(EXIT_CONFIG)
