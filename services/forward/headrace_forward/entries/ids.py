"""Ids for a message's events: a resent event gets the same id, and two different events never share one."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Generator
from hashlib import sha256
from typing import Final

from headrace_common.record import event
from headrace_common.record.event import FRAME_PREFIX, HASHED_AT_ONCE, FrameIds, deterministic_id, unique_frame_ids

PROTOCOL: Final = "forward"
NEAR: Final = 366 * 86_400
"""Seconds around now within which a chunk's first eight bytes count as the time that Go's logger writes there."""


NAMES_NOTHING: Final = frozenset((b"", b"z4PhNX7vuL3xVChQ1m2ABw==", b"cf83e1357eefb8bdf1542850d66d8007"))
"""Chunks that name nothing: an empty one, and Fluent Bit's in Message mode: SHA-512 of no bytes, cut to 16, as base64 or hex."""


class MessageIds:
    """Ids of a message's events by their index. `of`: in general."""

    __slots__ = ("_chunk", "_now", "_of_content", "of")

    def __init__(self, of: FrameIds, chunk: bytes, now: int) -> None:
        """`chunk`: empty if it names nothing; `now`: Unix time in seconds."""
        self.of = of
        self._chunk = chunk
        self._now = now
        self._of_content: FrameIds | None = None

    @property
    def of_content(self) -> FrameIds:
        """Those of events whose time is a whole millisecond: where the chunk may be a hash of the content, two equal ones are two
        events.
        """
        if self._of_content is None:
            self._of_content = unique_frame_ids() if names_content(self._chunk, self._now) else self.of
        return self._of_content


def message_ids(
    tag: bytes, chunk: bytes | None, client: bytes, body: bytes | bytearray | memoryview, now: int
) -> Generator[int, None, MessageIds]:
    """Returns the ids of a message's entries.

    Hashes tag, chunk, the client's name if it has one, and all entry bytes once, with pauses, so that a large body is hashed
    in slices. `client`: from its certificate or login; empty without one. `now`: Unix time in seconds.
    """
    if chunk is None or chunk in NAMES_NOTHING:
        return MessageIds(unique_frame_ids(), b"", now)
    fields = (tag, chunk, client) if client else (tag, chunk)
    if len(body) <= HASHED_AT_ONCE:
        return MessageIds(FrameIds(deterministic_id(PROTOCOL, *fields, body)[:FRAME_PREFIX]), chunk, now)
    state = sha256(event.id_fields(PROTOCOL, *fields) + len(body).to_bytes(4, "big"))
    yield from event.hash_slowly(state.update, body)
    return MessageIds(FrameIds(event.digest_id(state.digest())[:FRAME_PREFIX]), chunk, now)


def names_content(chunk: bytes, now: int) -> bool:
    """Returns whether `chunk` may be a hash of the content, so that it identifies the content and not the transmission.

    Only its form decides: 32 hex digits (Fluent Bit until 5.0), or exactly 24 base64 characters (Fluent Bit from 5.1: SHA-512
    cut to 16 bytes) whose first 8 bytes are not a little-endian Unix time near `now` (fluent-logger-golang's are; fluentd's
    25 bytes end in a newline). @fluent-org/logger's random ids look the same, but its resends have new ids anyway.
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
