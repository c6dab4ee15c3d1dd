"""A client's bytes to its requests: what both dialects share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from headrace_common.operations.errors import ProtocolError

from headrace_segment.wire.stream import WORK, MessageStream

R = TypeVar("R")


class Decoder(ABC, Generic[R]):
    """A client's bytes, split anywhere, to requests of the type R. `frame_bytes`: the longest message, and the longest block."""

    awaited: ClassVar[tuple[type, ...]]
    """Requests after which a client mostly waits for the answer. It may be there in the next turn, so `receive` ends there."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._stream = MessageStream(frame_bytes, self._accept)
        self._failed: ProtocolError | None = None
        self.busy = False
        """It stopped because it had done enough: call `receive` again, if need be with nothing."""

    @abstractmethod
    def partial_bytes(self) -> int:
        """Returns the bytes kept for an incomplete message or block; above 0 inside a block."""

    def receive(self, data: bytes) -> Iterator[R]:
        """Yields the requests that `data` completes. Exhaust it before the next call. Its work is bounded: see `busy`.

        Raises `ProtocolError` where the stream stops making sense; from then on every call raises it again.
        """
        if self._failed is not None:
            raise self._failed
        self._stream.feed(data)
        problem: tuple[str, str | None] | None = None
        left = WORK
        try:
            while left and (found := self._stream.next()) is not None:
                left -= 1
                request = self._take(*found)
                if request is not None:
                    yield request
                    if isinstance(request, self.awaited):
                        left = 0
        except ProtocolError as error:
            problem = str(error), error.limit
        if problem is not None:  # outside of the handler, so that the fault holds no reference to its cause
            raise self.refuse(*problem)
        self.busy = not left

    def cut_off(self) -> ProtocolError:
        """Returns the fault of a peer that ends inside a message or a block."""
        return self.refuse("the stream ends inside a message or a block")

    def refuse(self, problem: str, limit: str | None = None) -> ProtocolError:
        """Returns the fault of the request that was yielded last."""
        self._failed = self._stream.fault(problem, limit)
        self._forget()
        self.busy = False
        return self._failed

    @abstractmethod
    def _forget(self) -> None:
        """Drops the bytes kept for a block or a message in parts."""

    @abstractmethod
    def _accept(self, kind: int, length: int) -> int:
        """See `headrace_segment.wire.stream.Accept`."""

    @abstractmethod
    def _take(self, kind: int, body: bytes) -> R | None:
        """Returns the request that this message completes. Raises `ProtocolError`."""
