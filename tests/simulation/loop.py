"""An event loop whose clock is virtual and whose every choice comes from a seed.

Time passes in two ways: it jumps to the next timer when nothing is ready, and it creeps on by a little with each look at a clock,
so that slices of work end somewhere. What a process started runs in a context that names the process: once that is dead,
nothing of it runs again, wherever it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import random
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")

EPOCH = 1_795_000_000.0
"""Unix time at the virtual time 0."""

MOST_STEPS = 3_000_000
"""Callbacks after which a run is taken for one that never ends."""


class Mortal:
    """Whatever can be killed: a process. `context`: in which all that is its own runs."""

    def __init__(self) -> None:
        self.dead = False
        self.context = Context()
        self.context.run(OWNER.set, self)
        self.signals: dict[int, Callable[[], object]] = {}
        self.confirmed = self.quarantined = 0
        """Events that Kafka has told it are stored, and such in quarantine."""
        self.troubled = False
        """Kafka has answered a batch of it with an error."""


OWNER: ContextVar[Mortal | None] = ContextVar("owner", default=None)
WORLD = Context()
"""The context of network and Kafka, which nobody kills."""


class StuckError(Exception):
    """The simulation cannot go on: nothing is going to happen any more, or far too much does."""


class _Handle(asyncio.TimerHandle):
    """As asyncio's own, without what is for others to read, and without asking the loop whether it debugs."""

    __slots__ = ()

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context | None) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """With a hash that does not depend on where in memory it is: asyncio keeps futures and tasks in sets."""

    __slots__ = ("_number",)
    _number: int

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task):  # type: ignore[type-arg]
    __slots__ = ("_number",)

    def __init__(self, coro: Any, loop: SimulatedLoop, name: str | None, context: Context | None) -> None:
        loop._count = self._number = loop._count + 1
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Only what the receivers use. `creep`: seconds that pass with each look at the clock."""

    def __init__(self, chance: random.Random, creep: float = 2e-6) -> None:
        self._chance = chance
        self._creep = creep
        self._now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, float, int, _Handle]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._over = False
        self.steps = 0
        self.errors: list[str] = []
        self.before_step: Callable[[int], None] | None = None

    # Clocks

    @property
    def now(self) -> float:
        """The time, without making it pass."""
        return self._now

    def time(self) -> float:
        self._now += self._creep
        return self._now

    # Callbacks

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, context)
        if not self._over:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(callback, args, context)
        if not self._over:
            self._count += 1
            heapq.heappush(self._timers, (when, self._chance.random(), self._count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        self._count = future._number = self._count + 1
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = _Task(coro, self, name, context)
        self._tasks.append(task)  # the dead ones too: what is collected would run its `finally` in somebody's context
        if len(self._tasks) % 4096 == 0:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self._over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        owner = OWNER.get()
        if not self._over and (owner is None or not owner.dead):
            error = context.get("exception")
            self.errors.append(f"{context.get('message')}: {type(error).__name__}: {error}")

    def run_in_executor(self, executor: object, func: Callable[[*Ts], Any], *args: *Ts) -> asyncio.Future[Any]:
        """No work of another thread takes time here."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        owner = OWNER.get()
        assert owner is not None
        owner.signals[sig] = lambda: callback(*args)

    # Sockets, as `headrace_common.listening` uses them; they are of `network.py`

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        fd.read_with(lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        fd.read_with(None)
        return True

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        protocol = protocol_factory()
        sock.connect(protocol)
        return sock, protocol

    # Running

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs until `work` has ended; raises what it raises. Nothing of this loop runs afterwards."""
        asyncio._set_running_loop(self)
        try:
            main = self.create_task(work, context=WORLD)
            self._turns(main)
            main.result()
        finally:
            self._over = True
            self._ready.clear()
            self._timers.clear()
            self._bury()
            asyncio._set_running_loop(None)

    def _bury(self) -> None:
        """Closes what has not ended, here: the garbage collector would, somewhere."""
        with warnings.catch_warnings(), replaced((sys, "unraisablehook", lambda _: None)):
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
            self._tasks.clear()

    def _turns(self, main: asyncio.Task[None]) -> None:
        """What is ready runs, turn by turn, until `main` has ended."""
        timers, ready, pop = self._timers, self._ready, heapq.heappop
        while not main.done():
            if not ready:
                if not timers:
                    raise StuckError("nothing is ready, and no timer runs")
                if timers[0][0] > self._now:
                    self._now = timers[0][0]
            while timers and timers[0][0] <= self._now:
                handle = pop(timers)[3]
                if not handle._cancelled:
                    ready.append(handle)
            turn = [*ready]
            ready.clear()
            for handle in turn:
                if handle._cancelled:
                    continue
                context = handle._context
                owner = context.get(OWNER)
                if owner is not None:
                    if owner.dead:
                        continue
                    if self.before_step is not None:
                        self.before_step(self.steps)
                        if owner.dead:
                            continue
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise StuckError(f"{MOST_STEPS:,} callbacks, and no end")
                try:
                    context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"a callback: {handle._callback}", "exception": error})


@contextlib.contextmanager
def replaced(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Within it, what `places` name is something else: as `mock.patch.object`, in less time: each run replaces dozens."""
    missing = object()
    before = [
        (where, name, where.__dict__.get(name, missing) if isinstance(where, type) else getattr(where, name))
        for where, name, _ in places
    ]
    for place in places:
        setattr(*place)
    try:
        yield
    finally:
        for where, name, was in reversed(before):
            if was is missing:
                delattr(where, name)
            else:
                setattr(where, name, was)


@contextlib.contextmanager
def of_a_seed(loop: SimulatedLoop, chance: random.Random) -> Iterator[None]:
    """Inside the block, clocks are those of the loop, and chance comes from `chance` for all who ask the library."""
    state = random.getstate()
    before = time.time_ns, time.time, time.thread_time, time.monotonic, os.urandom
    random.seed(chance.getrandbits(64))
    time.time_ns = lambda: int((EPOCH + loop.now) * 1e9)
    time.time = lambda: EPOCH + loop.now
    time.thread_time = time.monotonic = loop.time
    os.urandom = chance.randbytes
    try:
        yield
    finally:
        time.time_ns, time.time, time.thread_time, time.monotonic, os.urandom = before
        random.setstate(state)
