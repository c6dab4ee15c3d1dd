"""Syslog over TCP: a stream to messages (RFC 6587). Pure: no sockets, no clock.

Each message shows by its first bytes how it is framed: behind a count of its bytes and a space, or as a line, which ends with
LF, CR LF or NUL. Empty lines are none.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import AtLeast, Parser, Steps
from typing_extensions import override

FRAME_BYTES: Final = "LIMITS__FRAME_BYTES"
_COUNT: Final = re.compile(rb"([1-9]\d{0,8}) ")
_DIGITS: Final = re.compile(rb"[1-9]\d{0,8}")
_BETWEEN: Final = re.compile(rb"[\n\r\0]*")
_END: Final = re.compile(rb"[\n\0]")


class SyslogDecoder(Parser[bytes]):
    """Decodes messages, split anywhere. `frame_bytes`: maximum size of one."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._line: list[bytes] = []  # a line without its end
        super().__init__()

    @override
    def messages(self) -> Steps:
        need = 1
        while True:
            self.begins()
            data = yield AtLeast(need)
            at, need = yield from self._frames(data)
            self._line = [] if need else [data[at:]]
            if need:
                self.unread(data[at:])
            del data  # not kept while nothing comes
            if not need:
                need = 1
                yield (yield from self._rest_of_line())

    def _frames(self, data: bytes) -> Generator[Any, bytes, tuple[int, int]]:
        """Yields the messages that are whole. Returns where they end, and how many bytes the next one has at least; 0: it is a
        line.
        """
        at = 0
        while at < len(data):
            between = _BETWEEN.match(data, at)
            at = at if between is None else between.end()
            self.begins(data, at)
            if count := _COUNT.match(data, at):
                end = count.end() + self._checked(int(count[1]))
                if len(data) < end:
                    return at, end - at
                yield data[count.end() : end]
                at = end
            elif at == len(data) or _DIGITS.fullmatch(data, at):
                return at, len(data) - at + 1
            elif (last := _END.search(data, at)) is None:
                return at, 0
            else:
                self._checked(last.start() - at)
                yield data[at : last.start()].removesuffix(b"\r")
                at = last.end()
        return at, 1

    def _rest_of_line(self) -> Generator[Any, bytes, bytes]:
        while True:
            self._checked(self.held)
            piece = yield AtLeast(1)
            last = _END.search(piece)
            self._line.append(piece if last is None else piece[: last.start()])
            if last is None:
                self.held += len(piece)
            else:
                self.unread(piece[last.end() :])
                line, self._line = b"".join(self._line), []
                self._checked(len(line))
                return line.removesuffix(b"\r")

    def _checked(self, size: int) -> int:
        if size > self._frame_bytes:
            raise ProtocolError("a message that is too large", limit=FRAME_BYTES)
        return size

    @override
    def close(self) -> None:
        self._line = []
        super().close()

    def last(self) -> bytes:
        """Returns the line in which the stream ends; empty: none. Raises `ProtocolError` if it ends inside a counted message."""
        rest = bytes(self._buffer[self._at :])
        line = b"".join(self._line) + rest
        if not self._line and rest and not _DIGITS.fullmatch(rest):
            raise self.fault("the stream ends inside a message")
        self.close()
        self._base = self._offset
        return line.removesuffix(b"\r")
