"""Values that msgpack has and JSON lacks, and small msgpack objects without loss.

An ext becomes ``{"$ext": [type, base64]}``, an EventTime RFC 3339 with nine decimals. `Transcoder` has the rest, with its
notes. A bin that is UTF-8 becomes a text, because fluentd's in_tail and in_syslog send every text as bin.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import msgpack
from headrace_common.record.event import rfc3339
from headrace_common.record.json_text import Bytes, write_base64

from headrace_forward.wire import EventTime


@dataclass(frozen=True, slots=True)
class Ext:
    """An ext as received. msgpack's own class refuses negative types, which the format reserves but can carry."""

    code: int
    data: bytes


def unpack(raw: Bytes) -> Any:
    """Unpacks the msgpack object `raw` without loss: maps as pairs, texts that are not UTF-8 with escaped surrogates. For short
    ones: it takes as long and as much memory as the objects do.

    Raises ValueError if `raw` is not exactly one object.
    """
    try:
        return msgpack.unpackb(
            raw,
            raw=False,
            unicode_errors="surrogateescape",
            strict_map_key=False,
            object_pairs_hook=tuple,
            ext_hook=Ext,
        )
    except (msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"not msgpack: {type(error).__name__} {error}".strip()) from error


def write_ext(out: bytearray, code: int, data: Bytes, raw: Bytes) -> None:
    """Appends an ext to JSON. `raw`: all its bytes. Raises ValueError for a timestamp that is none."""
    if code == 0 and len(data) == 8:
        out += b'"%b"' % event_time_text(EventTime.decode(data))
        return
    if code == -1:  # rewritten in its shortest form
        data = unpack(raw).to_bytes()
    out += b'{"$ext":[%d,"' % code
    write_base64(out, data)
    out += b'"]}'


def event_time_text(time: EventTime) -> bytes:
    """Returns RFC 3339 with nine decimals. Nanoseconds of a second or more carry over, as in fluentd."""
    carry, nanoseconds = divmod(time.nanoseconds, 1_000_000_000)
    return rfc3339(time.seconds + carry, nanoseconds)


def bin_or_text(data: bytes) -> object:
    """Returns a str or bin for an attribute: text if it is UTF-8, else ``{"$bin": base64}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"$bin": b64encode(data).decode()}
