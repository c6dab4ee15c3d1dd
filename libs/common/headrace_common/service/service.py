"""A receiver's process: the order in which it starts and stops, its health, and its entry point.

========  ==========================================  ===========================================================
step      starting                                    stopping
========  ==========================================  ===========================================================
1         listeners take their addresses              readiness turns red; listeners close,
                                                      once those who have connected are admitted
2         health and metrics over HTTP                connections stop reading, wait for Kafka's and the service's
                                                      answers, write the last acknowledgements, half-close, close
3         publisher: Kafka answers, topics exist      the service's own parts
4         the service's own parts                     publisher: flushes what still waits for Kafka
5         listeners accept clients                    health and metrics
========  ==========================================  ===========================================================

Steps 2 to 4 share LIMITS__DRAIN_TIME; the last two have a second each in any case. A task that ends before the service stops is a
bug in Headrace: the service stops in the same order, says which task ended and why, and exits with status 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import resource
import select
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeVar

import uvloop
from typing_extensions import override

from headrace_common import __version__
from headrace_common.connection.receiver_state import CONNECTIONS, ReceiverState
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.listening.endpoint import Endpoint
from headrace_common.listening.listener import Listener, SessionFactory
from headrace_common.listening.tls import client_tls
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.health import Health, OpsServer
from headrace_common.operations.log import STANDARD_ERROR, Log, configure
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import ServiceSettings, load
from headrace_common.operations.tasks import Tasks, stops
from headrace_common.publishing.in_flight import Growth
from headrace_common.publishing.publisher import Publisher
from headrace_common.record import native
from headrace_common.service.parts import Parts, Runtime

S = TypeVar("S", bound=ServiceSettings)

STALL_LOOK: Final = 0.25
STALL_WINDOW: Final = 60.0
STALL_LIMIT: Final = 5.0
"""Seconds without a turn of the loop after which standard error says what each thread does. Probes give up after some seconds."""

OWN_FILES: Final = 100
"""Files that a receiver opens beside its connections: Kafka's, and those of the operations port."""

Build = Callable[[Runtime[S]], Parts]
"""Makes a service's parts; called inside the event loop, before anything listens."""


def stream_listeners(runtime: Runtime[S], port: int, new_session: SessionFactory) -> list[Endpoint]:
    """Returns the listener that LISTEN and TLS ask for. Raises `ConfigError`."""
    settings = runtime.settings
    tls = client_tls(settings.tls, runtime.metrics) if settings.tls.cert is not None else None
    return [Listener(runtime.receiver, runtime.tasks, new_session, settings.listen, port, tls)]


class Service(Health, Generic[S]):
    """One receiver: everything between its settings and its parts."""

    def __init__(self, protocol: str, settings: S, build: Build[S]) -> None:
        self._settings = settings
        self._build = build
        self._log: Log = configure(settings.log, protocol)
        self._metrics = ReceiverMetrics()
        self._metrics.build_info.labels(__version__, native.label()).set(1)
        self._accepting = False
        self._own_started = False
        self._addresses: dict[str, str] = {}
        self._stalls = deque([0.0], int(STALL_WINDOW / STALL_LOOK))

    async def run(self) -> str | None:
        """Serves until a signal stops it, then drains. Raises `ConfigError` if it cannot start.

        Returns None, or why it stopped by itself.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in stops():
            loop.add_signal_handler(number, stop.set)
        settings, limits = self._settings, self._settings.limits
        self._tasks = tasks = Tasks(stop.set)
        scheduler = Scheduler()
        self._budget = Budget(limits.process_budget, limits.connection_budget - limits.inflated_bytes)
        self._growth = Growth(limits.process_budget // 2, limits.inflated_bytes)
        self._publisher = Publisher(settings.kafka, scheduler, self._growth, self._metrics, self._log, tasks)
        self._receiver = ReceiverState(
            publisher=self._publisher,
            budget=self._budget,
            scheduler=scheduler,
            limits=limits,
            metrics=self._metrics,
            log=self._log,
        )
        runtime = Runtime(settings, self._receiver, self._metrics, self._log, tasks, self.ready_problems)
        self._parts = self._build(runtime)
        self._receiver.backend = self._parts.backend
        ops = OpsServer(settings.ops, self, self._metrics)
        tasks.start(self._watch_loop(), "loop watch")
        try:
            for listener in self._parts.listeners:
                self._addresses[listener.name] = await listener.bind()
            await ops.start()
            self._log.info(
                "starting",
                version=__version__,
                native=native.label(),
                ops=ops.port,
                kafka=settings.kafka.bootstrap_servers,
            )
            if await _unless(stop, self._start()):
                for listener in self._parts.listeners:
                    listener.start()
                self._accepting = True
                self._log.info("ready", tls=settings.tls.cert is not None, **self._addresses)
                await stop.wait()
        finally:
            await self._stop()
            await tasks.stop()
            await ops.stop()
        return tasks.problem

    async def _start(self) -> None:
        await self._publisher.start()
        self._own_started = True
        await self._parts.own.start()

    async def _stop(self) -> None:
        """Stops in the order of the module's table."""
        self._tasks.stopping = True
        if self._tasks.problem is not None:
            self._log.error("a task has ended: the service stops", problem=self._tasks.problem)
        # A service that could not start prints one line that says why; these would only follow it.
        say = self._log.info if self._addresses else self._log.debug
        say("stopping", connections=len(self._receiver.connections))
        for listener in self._parts.listeners:
            await listener.close()
        clock = asyncio.get_running_loop().time
        until = clock() + self._settings.limits.drain_time
        await self._receiver.drain(self._settings.limits.drain_time)
        if self._own_started:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._parts.own.stop(), max(1.0, until - clock()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._publisher.flush(), max(1.0, until - clock()))
        await self._publisher.close()
        say("stopped")

    async def _watch_loop(self) -> None:
        clock = asyncio.get_running_loop().time
        read = select.poll()
        read.register(STANDARD_ERROR, select.POLLOUT)
        while True:
            if read.poll(0):  # else its thread, which needs no lock of the interpreter, would not end
                faulthandler.dump_traceback_later(STALL_LIMIT, file=STANDARD_ERROR)
            before = clock()
            try:
                await asyncio.sleep(STALL_LOOK)
            finally:
                faulthandler.cancel_dump_traceback_later()
            self._stalls.append(clock() - before - STALL_LOOK)

    @override
    def live_problems(self) -> list[str]:
        """Returns that a task has ended, if one has. The loop itself is alive if it answers this."""
        return [] if self._tasks.problem is None else [self._tasks.problem]

    @override
    def ready_problems(self) -> list[str]:
        """Returns why it is not ready: draining, Kafka, the service's own parts; else that its listeners do not accept yet."""
        found = self._publisher.ready_problems() + self._parts.own.ready_problems()
        found = ["draining", *found] if self._tasks.stopping else found
        return found if found or self._accepting else ["starting"]

    @override
    def collect(self) -> None:
        self._metrics.connections.set(len(self._receiver.connections))
        self._metrics.connections_paused.set(self._budget.paused)
        self._metrics.budget_used_bytes.set(self._budget.used + self._growth.used)
        self._metrics.budget.set(self._settings.limits.process_budget)
        self._metrics.loop_stall_seconds.set(max(self._stalls))
        self._publisher.collect()


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Runs `work`, but cancels it when `stop` is set. Returns whether it finished; raises what it raises."""
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


def raise_file_limit(connections: int) -> None:
    """Lets this process open as many files as it may: each connection is one. Raises `ConfigError` if these are too few: it would
    neither reach Kafka nor answer a probe, and no connection would make way.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < connections + OWN_FILES:
        raise ConfigError(
            f"{CONNECTIONS} ({connections}) and {OWN_FILES} are more files than this process may open ({hard})"
        )
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def calm_collector() -> None:
    """Makes the cycle collector run rarely: events form no cycles, and looking for them took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def run(protocol: str, settings_type: type[S], build: Build[S]) -> str | None:
    """Runs a receiver until it is told to stop. Returns why it ended if one of its tasks did; raises `ConfigError`."""
    settings = load(settings_type)
    if refused := native.choose(os.environ.get(native.VARIABLE, native.AUTO)):
        raise ConfigError(refused)
    raise_file_limit(settings.limits.connections)
    calm_collector()
    return uvloop.run(Service(protocol, settings, build).run())
