"""Parses a byte stream by a generator: plain code that yields how many bytes it needs next. Pure.

What every decoder needs is here, once: bytes that are split anywhere, bounded work in a call, where a faulty message begins and
its first bytes, and the bytes that are kept of an incomplete one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Any, Final, Generic, TypeVar

from headrace_common.operations.errors import ProtocolError

T = TypeVar("T")

WORK: Final = 1 << 20
"""The work of one call, as inflated bytes that take as long: a few milliseconds."""

MESSAGE_WORK: Final = 8192
"""The work of a message, likewise."""

SAMPLE: Final = 16
"""First bytes of a message that a fault shows."""


class UpTo(int):
    """Asks for the bytes that are there, at least one and at most this many."""


class AtLeast(int):
    """Asks for all bytes that are there, at least this many. What is too much goes back by `Parser.unread`."""


class Cost(int):
    """Work that was done, as inflated bytes that take as long."""


Steps = Generator[Any, bytes, None]
"""Yields a number, to be sent as many bytes; an `UpTo` or `AtLeast`; a `Cost`; or a message, which is handed out."""


class Parser(ABC, Generic[T]):
    """Decodes a stream into messages. Memory follows the bytes that have arrived, never an announced length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0  # how far the buffer is parsed
        self._base = 0  # offset in the stream of its first byte
        self._offset = 0  # of the current message
        self._sample = b""
        self._failed: ProtocolError | None = None
        self.held = 0
        """Bytes that `messages` keeps of the current message."""
        self.busy = False
        """It stopped after enough work: call `receive` again, with or without bytes."""
        self._steps = self.messages()
        self._wanted: Any = next(self._steps)

    @abstractmethod
    def messages(self) -> Steps:
        """Parses the stream. Calls `begins` in front of each message. Raises `ProtocolError`."""

    def begins(self, taken: bytes = b"", at: int = 0) -> None:
        """Notes that a message begins with the next byte; or at `at` in `taken`, the last bytes that were sent."""
        self.held = len(taken) - at
        self._offset, self._sample = self._base + self._at - self.held, taken[at : at + SAMPLE]

    def unread(self, data: bytes) -> None:
        """Puts back the last bytes that were sent."""
        self._buffer[: self._at] = data
        self._base, self._at = self._base + self._at - len(data), 0

    def partial_bytes(self) -> int:
        """Returns the bytes kept of an incomplete message; above 0 inside any."""
        return len(self._buffer) - self._at + max(self.held, self._base + self._at > self._offset)

    def receive(self, data: bytes) -> Iterator[T]:
        """Yields the messages that `data` completes. Exhaust it before the next call. It does a bounded part of the work.

        Raises `ProtocolError` where the stream becomes invalid; every later call raises it again.
        """
        if self._failed is not None:
            raise self._failed
        self._buffer += data
        problem, left = None, WORK
        try:
            while left > 0:
                wanted = self._wanted
                if not isinstance(wanted, int):
                    yield wanted
                    left -= MESSAGE_WORK
                    self._wanted = next(self._steps)
                elif type(wanted) is Cost:
                    left, self._wanted = left - wanted, Cost(0)  # paid
                    if left > 0:
                        self._wanted = next(self._steps)
                else:
                    there = len(self._buffer) - self._at
                    if there < (1 if type(wanted) is UpTo else wanted):
                        break
                    size = there if type(wanted) is AtLeast else min(there, wanted)
                    self._wanted = self._steps.send(self._take(size))
        except ProtocolError as error:
            problem = str(error), error.limit
        if problem is not None:  # outside the handler, so that the fault holds no reference to its cause
            raise self.fault(*problem)
        self.busy = left <= 0
        del self._buffer[: self._at]
        self._base, self._at = self._base + self._at, 0

    def receive_all(self, data: bytes) -> Iterator[T]:
        """Yields the messages that `data` completes, however long that takes: for clients. Raises as `receive`."""
        yield from self.receive(data)
        while self.busy:
            yield from self.receive(b"")

    def _take(self, size: int) -> bytes:
        at, self._at = self._at, self._at + size
        if self._base + at == self._offset:
            self._sample = bytes(self._buffer[at : at + SAMPLE])
        with memoryview(self._buffer) as view:
            taken = bytes(view[at : at + size])
        if self._at == len(self._buffer):  # not kept beside its copy
            self._buffer, self._base, self._at = bytearray(), self._base + self._at, 0
        return taken

    def fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        """Ends parsing with a fault of the current message. Frees all that is kept."""
        sample = (
            self._sample if self._base + self._at > self._offset else bytes(self._buffer[self._at : self._at + SAMPLE])
        )
        self._failed = ProtocolError(problem, limit=limit, offset=self._offset, sample=sample)
        self._base = self._offset
        self.close()
        return self._failed

    def close(self) -> None:
        """Ends parsing. Frees all that is kept: the generator refers to the parser, so both would stay until a collection."""
        self._buffer, self._at, self.held, self.busy = bytearray(), 0, 0, False
        self._steps.close()
