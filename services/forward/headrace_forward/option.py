"""A message's option map: what it asks of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_forward.kinds import KINDS, Kind, content
from headrace_forward.values import to_json, unpack
from headrace_forward.wire import Message, new_unpacker

NOTHING: Final = b"\x80"
KEYS: Final = {
    b"\xa5chunk": "chunk",
    b"\xaacompressed": "compressed",
    b"\xadfluent_signal": "fluent_signal",
    b"\xa8metadata": "metadata",
}
"""The keys that matter, as every client measured encodes them; other encodings are decoded."""

LONGEST_KEY: Final = 5 + max(map(len, KEYS.values()))


@dataclass(frozen=True, slots=True)
class Option:
    """What matters of an option map.

    `chunk` is the chunk's content, `reply` its encoding as received (both None: no acknowledgement is asked for); `metadata`
    the event's in Message mode, encoded, unless it says nothing (Fluent Bit has no other place for it there); `raw` the
    whole map; `problem` says why the option makes no sense.
    """

    chunk: bytes | None = None
    reply: bytes | None = None
    compressed: str | None = None
    signal: int = 0
    metadata: bytes | None = None
    raw: bytes = NOTHING
    problem: str | None = None

    def json(self) -> bytes:
        """The whole map as JSON."""
        return as_json(self.raw)


NONE: Final = Option()


def read(message: Message) -> Option:
    """The option of `message`. Never raises."""
    index = message.option_index
    kind = message.kind(index)
    if kind is None or kind is Kind.NIL:  # nil: Docker 18's log driver
        return NONE
    raw = message.element(index)
    if kind is not Kind.MAP:
        return Option(raw=raw, problem="the option is not a map")
    if raw == NOTHING:
        return NONE
    values = _values(raw)
    reply = values.get("chunk")
    chunk = None
    if reply is not None:
        number = _integer(reply)
        if KINDS[reply[0]] in (Kind.STR, Kind.BIN):
            chunk = content(reply)
        elif number is not None:
            chunk = str(number).encode()
        elif KINDS[reply[0]] is Kind.NIL:
            reply = None
        else:
            return Option(raw=raw, problem="the chunk is neither a str, a bin nor an integer")
    compressed = content(values["compressed"]).decode("utf-8", "replace") if "compressed" in values else None
    signal = _integer(values["fluent_signal"]) if "fluent_signal" in values else None
    metadata = values.get("metadata", NOTHING)
    if KINDS[metadata[0]] is not Kind.MAP or metadata == NOTHING:
        return Option(chunk, reply, compressed, signal or 0, None, raw)
    return Option(chunk, reply, compressed, signal or 0, metadata, raw)


def as_json(raw: bytes) -> bytes:
    """A msgpack object as JSON; ``null`` when it is nested too deep."""
    try:
        return to_json(raw)
    except ValueError:
        return b"null"


def _integer(raw: bytes) -> int | None:
    """The integer that `raw` is; None when it is anything else."""
    if KINDS[raw[0]] is not Kind.OTHER:
        return None
    try:
        value = unpack(raw)
    except ValueError:  # a timestamp of a length that none has
        return None
    return value if type(value) is int else None


def _values(raw: bytes) -> dict[str, bytes]:
    """The map's values that matter, as received; of a repeated key the last."""
    unpacker = new_unpacker()
    unpacker.feed(raw)
    found: dict[str, bytes] = {}
    for _ in range(unpacker.read_map_header()):
        start = unpacker.tell()
        unpacker.skip()
        middle = unpacker.tell()
        unpacker.skip()
        key = _key(raw[start : min(middle, start + LONGEST_KEY)])
        if key is not None:
            found[key] = raw[middle : unpacker.tell()]
    return found


def _key(raw: bytes) -> str | None:
    known = KEYS.get(raw)
    if known is None and KINDS[raw[0]] in (Kind.STR, Kind.BIN):
        text = content(raw).decode("utf-8", "replace")
        return text if text in KEYS.values() else None
    return known
