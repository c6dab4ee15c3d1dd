"""Names of what a message carries: the same sent again gets the same id, and two different events never share one."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Generator
from typing import Final

from headrace_common.event import FieldHash, FrameIds, Protocol, unique_frame_ids

PROTOCOL: Final = Protocol.FORWARD
SLICE_BYTES: Final = 1 << 20
"""Bytes hashed between two pauses."""

NEAR: Final = 366 * 86_400
"""Seconds around now in which the first eight bytes of a chunk count as the time that Go's logger writes there."""


def message_ids(
    tag: bytes, chunk: bytes | None, body: bytes | bytearray | memoryview, now: int
) -> Generator[int, None, tuple[FrameIds, FrameIds]]:
    """The generator's value: ids of a message's entries, and of those whose time is a whole millisecond.

    One hash over tag, chunk and all entry bytes; it pauses (yields 0) so that hashing a large body is sliced. `now` is Unix
    time in seconds.
    """
    if chunk is None:
        ids = unique_frame_ids()
        return ids, ids
    state = FieldHash(PROTOCOL, tag, chunk)
    state.begin(len(body))
    with memoryview(body) as view:
        for start in range(0, len(body), SLICE_BYTES):
            if start:
                yield 0
            state.update(view[start : start + SLICE_BYTES])
    ids = state.frame_ids()
    return ids, unique_frame_ids() if names_content(chunk, now) else ids


def names_content(chunk: bytes, now: int) -> bool:
    """Whether `chunk` may be a hash of the content, so that it names what was sent and not the sending.

    By its form alone: 32 hex digits (Fluent Bit until 5.0), or exactly 24 base64 characters (Fluent Bit from 5.1: SHA-512
    cut to 16 bytes) whose first 8 bytes are not a little-endian Unix time near `now` (fluent-logger-golang's are; fluentd's
    25 bytes end in a newline). @fluent-org/logger's random ids look the same; its resends have new ones anyway.
    """
    if len(chunk) == 32:
        try:
            binascii.unhexlify(chunk)
        except ValueError:
            return False
        return True
    if len(chunk) != 24:
        return False
    try:
        decoded = b64decode(chunk, validate=True)
    except ValueError:
        return False
    return abs(int.from_bytes(decoded[:8], "little") - now) > NEAR
