"""RELP on the wire: bytes to frames and back. Pure: no sockets, no clock.

A frame is a transaction number, a command, the length of its data, the data and a line feed; all but the last are separated by a
space, and without data there may be none behind the length. Source: librelp, doc/relp.html.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import AtLeast, Parser, Steps
from typing_extensions import override

OPEN: Final = b"open"
CLOSE: Final = b"close"
SYSLOG: Final = b"syslog"
ANSWER: Final = b"rsp"
GOODBYE: Final = b"serverclose"
HINT: Final = 0
"""The number of a frame that asks for no answer."""

STORED: Final = b"%d rsp 6 200 OK\n"
"""The answer to a message, by its number."""

_HEADER: Final = re.compile(rb"(\d{1,9}) ([A-Za-z]{1,11}) (?:0{1,9}(?=\n)|(\d{1,9}) )")
_BEGUN: Final = re.compile(rb"\d{0,9}|\d{1,9} [A-Za-z]{0,11}|\d{1,9} [A-Za-z]{1,11} \d{0,9}")


class RelpFrame(NamedTuple):
    """One frame."""

    number: int
    command: bytes
    data: bytes = b""

    def encode(self) -> bytes:
        """Returns it as bytes."""
        data = b" " + self.data if self.data else b""
        return b"%d %b %d%b\n" % (self.number, self.command, len(self.data), data)


class RelpDecoder(Parser[RelpFrame]):
    """Decodes frames, split anywhere. `frame_bytes`: maximum size of a frame's data."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        super().__init__()

    @override
    def messages(self) -> Steps:
        need = 1
        while True:
            self.begins()
            data = yield AtLeast(need)
            at, need = yield from self._whole(data)
            self.unread(data[at:])
            del data  # not kept while nothing comes

    def _whole(self, data: bytes) -> Generator[Any, bytes, tuple[int, int]]:
        """Yields the frames that are whole. Returns where they end, and how many bytes the next one has at least."""
        at = 0
        while at < len(data):
            self.begins(data, at)
            header = _HEADER.match(data, at)
            if header is None:
                if _BEGUN.fullmatch(data, at) is None:
                    raise ProtocolError("no frame of RELP")
                return at, len(data) - at + 1
            size, begin = int(header[3] or 0), header.end()
            if size > self._frame_bytes:
                raise ProtocolError(f"a frame of {size} bytes", limit="LIMITS__FRAME_BYTES")
            end = begin + size
            if len(data) <= end:
                return at, end + 1 - at
            if data[end : end + 1] != b"\n":
                raise ProtocolError("no line feed where a frame ends")
            yield RelpFrame(int(header[1]), header[2], data[begin:end])
            at = end + 1
        return at, 1
