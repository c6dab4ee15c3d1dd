"""The type numbers of messages, one table for both dialects."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

HEADER: Final = struct.Struct(">iI")
MAX_BODY: Final = 0x00FFFFFF
"""The longest body: the upper byte of a length is always 0."""

FRAME_BYTES: Final = "LIMITS__FRAME_BYTES"
"""The setting that limits a message, a block, and what is put together from partial messages."""


class Kind(IntEnum):
    """The type of a message."""

    HELLO = -127
    PARTIAL_MESSAGE = -2
    PADDING = -1
    EVENT = 0
    SETUP_APPEND = 1
    APPEND_SETUP = 2
    BEGIN_APPEND_BLOCK = 3
    END_APPEND_BLOCK = 4
    DATA_APPENDED = 7
    READ_SEGMENT = 9
    SEGMENT_READ = 10
    GET_SEGMENT_INFO = 11
    SEGMENT_INFO = 12
    CREATE_SEGMENT = 20
    SEGMENT_CREATED = 21
    SEGMENT_ALREADY_EXISTS = 52
    NO_SUCH_SEGMENT = 53
    SEGMENT_IS_TRUNCATED = 56
    OPERATION_UNSUPPORTED = 57
    KEEP_ALIVE = 100


def message(kind: int, body: bytes) -> bytes:
    """Returns a message of any kind."""
    if len(body) > MAX_BODY:
        raise ValueError(f"a body of {len(body)} bytes")
    return HEADER.pack(kind, len(body)) + body
