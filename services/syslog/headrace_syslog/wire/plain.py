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

_NEXT: Final = re.compile(rb"[\n\r\0]*+(?:([1-9]\d{0,8}) |([^\n\0]++)[\n\0])")
_DIGITS: Final = re.compile(rb"[1-9]\d{0,8}")
_END: Final = re.compile(rb"[\n\0]")


class SyslogDecoder(Parser[bytes]):
    """Decodes messages, split anywhere. `frame_bytes`: maximum size of one."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self.counted = False
        """The current message is one behind its count."""
        super().__init__()

    @override
    def messages(self) -> Steps:
        need = 1
        while True:
            self.begins()
            data = yield AtLeast(need)
            at, need = yield from self._whole(data)
            rest = [data[at:]]
            del data  # not kept while nothing comes
            if need:
                self.unread(rest.pop())
            else:
                need = yield from self._rest_of(rest)

    def _whole(self, data: bytes) -> Generator[Any, bytes, tuple[int, int]]:
        """Yields the messages that are whole. Returns where they end, and how many bytes the next one has at least; 0: it is a
        line.
        """
        at = 0
        while found := _NEXT.match(data, at):
            begin = found.start(found.lastindex or 0)
            self.begins(data, begin)
            self.counted = found.lastindex == 1
            at = found.end()
            if self.counted:
                end = at + self._checked(int(found[1]))
                if len(data) < end:
                    return begin, end - begin
                yield data[at:end]
                at, self.counted = end, False
            else:
                self._checked(len(found[2]))
                yield found[2].removesuffix(b"\r")
        left = len(data[at:].lstrip(b"\n\r\0"))
        at = len(data) - left
        self.begins(data, at)
        return at, left + 1 if not left or _DIGITS.fullmatch(data, at) else 0

    def _rest_of(self, line: list[bytes]) -> Generator[Any, bytes, int]:
        """Yields a line that has begun, in pieces so that none is looked through twice. Returns what `_whole` does."""
        last = None
        while last is None:
            self._checked(self.held)
            piece = yield AtLeast(1)
            last = _END.search(piece)
            line.append(piece[: last.start() if last else None])
            self.held += len(line[-1])
        self._checked(self.held)
        self.unread(piece[last.end() :])
        yield b"".join(line).removesuffix(b"\r")
        return 1

    def _checked(self, size: int) -> int:
        if size > self._frame_bytes:
            raise ProtocolError("a message that is too large", limit="LIMITS__FRAME_BYTES")
        return size
