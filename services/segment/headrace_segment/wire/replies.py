"""Decodes the service's replies, as a client hears them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace_segment.wire.codes import HEADER
from headrace_segment.wire.layout import Table
from headrace_segment.wire.original import MESSAGES


class Replies:
    """One connection's, in the dialect of `messages`."""

    def __init__(self, messages: Table = MESSAGES) -> None:
        self._messages = messages
        self._data = b""

    def receive(self, data: bytes) -> Iterator[Any]:
        """Yields the messages that `data` completes. Raises `ProtocolError`."""
        self._data += data
        while len(self._data) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._data)
            end = HEADER.size + length
            if len(self._data) < end:
                return
            body, self._data = self._data[HEADER.size : end], self._data[end:]
            yield self._messages.decode(kind, body)
