"""ZeroMQ, as far as a consumer of devices uses it.

A socket keeps what it was sent, in order, through cuts; who is not connected hears nothing. Its descriptor says once that
something has come, until all is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import zmq
from headrace_common.service.parts import OwnParts, Parts, Runtime
from headrace_logjam.access import CurvePair
from headrace_logjam.devices.endpoints import Subscriptions
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.settings import LogjamSettings

from tests.simulation.libzmq import Part
from tests.simulation.loop import OWNER, Mortal


class Monitor:
    """Where it is said that a connection has ended."""

    def __init__(self) -> None:
        self.ended = 0

    def recv_multipart(self, flags: int) -> list[bytes]:
        if not self.ended:
            raise zmq.Again
        self.ended -= 1
        return []

    def close(self) -> None:
        pass


class SubSocket:
    """What one endpoint has said and was not read."""

    def __init__(self, world: Any, life: Any) -> None:
        self._world = world
        self.life = life
        self.monitor = Monitor()
        self._most = 0
        self._messages: deque[list[bytes]] = deque()
        self.taken: list[list[bytes]] = []
        """The messages that its process has read."""
        self._parts: deque[bytes] = deque()
        self._callback: Callable[[], None] | None = None
        self._told = False

    def setsockopt(self, option: int, value: Any) -> None:
        if option == zmq.RCVHWM:
            self._most = value

    def getsockopt(self, option: int) -> SubSocket:
        assert option == zmq.FD
        return self

    def connect(self, where: str) -> None:
        self._world.devices[where].subscribe(self)

    def close(self) -> None:
        for device in self._world.devices.values():
            device.unsubscribe(self)

    def read_with(self, callback: Callable[[], None] | None) -> None:
        """As the event loop watches a descriptor."""
        self._callback = callback

    def arrives(self, message: list[bytes]) -> bool:
        """Whether there is room for it."""
        if len(self._messages) >= self._most:
            return False
        self._messages.append(message)
        if not self._told and self._callback is not None:
            self._told = True
            self._world.loop.call_soon(self._callback, context=self.life.context.copy())
        return True

    def recv(self, flags: int = 0, *, copy: bool = True) -> Part:
        if not self._parts:
            if not self._messages:
                self._told = False
                raise zmq.Again
            self.taken.append(self._messages.popleft())
            self._parts.extend(self.taken[-1])
        data = self._parts.popleft()
        self.life.heard += len(data)
        return Part(data, bool(self._parts))


def build(runtime: Runtime[LogjamSettings]) -> Parts:
    """A service that consumes devices and serves no producers."""
    life = OWNER.get()
    assert isinstance(life, Mortal)
    context = cast("Any", _Context(life))
    return Parts([], _Consumer(Subscriptions(runtime, LogjamMetrics(runtime.metrics), context, CurvePair(b"", b""))))


class _Context:
    def __init__(self, life: Any) -> None:
        self._life = life

    def socket(self, kind: int) -> SubSocket:
        assert kind == zmq.SUB
        return SubSocket(self._life.world, self._life)


class _Consumer(OwnParts):
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    async def start(self) -> None:
        self._subscriptions.start()

    async def stop(self) -> None:
        self._subscriptions.stop()
