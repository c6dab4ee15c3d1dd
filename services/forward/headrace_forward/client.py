"""A client like fluentd: each message has a chunk. Pure; it has no login."""

from __future__ import annotations

import base64
import gzip
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgpack
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import STREAM, Answer, KeyedClient, Remark
from headrace_common.session.inflate import zstd
from typing_extensions import override

from headrace_forward.wire import EventTime

HELO: Final = b"\x92\xa4HELO"
"""The first bytes of a server that asks for a login."""


class ForwardClient(KeyedClient):
    """A frame is one message in PackedForward, compressed or not."""

    elsewhere = True
    malformed = b"\xc1" * 16

    def __init__(self, compression: str | None = None) -> None:
        super().__init__(compression)
        self._unpacker = msgpack.Unpacker(unicode_errors="surrogateescape")

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        return _packed([_now(), event])

    @override
    def broken(self, event: Mapping[str, Any]) -> bytes:
        return _packed([_now(), f"no map: {event}"])

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        entries = b"".join(documents)
        if not self.compression:
            return self.packed(entries, len(documents))
        entries = zstd.compress(entries) if self.compression == "zstd" else gzip.compress(entries, 6, mtime=0)
        return self.packed(entries, len(documents), compressed=self.compression)

    def packed(self, entries: bytes, size: int, **option: str) -> bytes:
        """Makes the next frame, in PackedForward, with these bytes in place of `size` entries, and more options."""
        return b"\x93" + _TAG + _packed(entries) + self._option(size, **option)

    def _option(self, size: int, **more: str) -> bytes:
        chunk = base64.b64encode(os.urandom(16)).decode()
        self._keyed(chunk, size)
        return _packed({"size": size, "chunk": chunk, **more})

    @override
    def again(self) -> bytes:
        self._unpacker = msgpack.Unpacker(unicode_errors="surrogateescape")
        return b""

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        if data.startswith(HELO):
            raise ProtocolError("it asks for a login")
        self._unpacker.feed(data)
        try:
            chunks = [reply["ack"] for reply in self._unpacker]
        except (KeyError, TypeError, ValueError, msgpack.FormatError) as error:
            raise ProtocolError(f"not an acknowledgement: {error}") from error
        frames = [self._frame_of(chunk) for chunk in chunks]
        return [self._answer(frame, self._sizes[frame]) for frame in frames]


def _now() -> Any:
    return EventTime(*divmod(time.time_ns(), 10**9)).encode()


def _packed(value: object) -> bytes:
    return bytes(msgpack.packb(value, unicode_errors="surrogateescape"))


_TAG: Final = _packed(STREAM)
