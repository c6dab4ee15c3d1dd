"""A message's option map: the client's requests to the server."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from headrace_forward.entries.values import to_json, unpack
from headrace_forward.kinds import KINDS, MAP, NIL, TEXTS, MsgpackKind, content
from headrace_forward.wire import ForwardMessage, new_unpacker

NOTHING: Final = b"\x80"
KEYS: Final = {
    b"\xa5chunk": "chunk",
    b"\xaacompressed": "compressed",
    b"\xadfluent_signal": "fluent_signal",
    b"\xa8metadata": "metadata",
    b"\xa4size": "size",
}
"""The keys that Headrace uses, as every measured client encodes them; other encodings are decoded."""

NAMES: Final = frozenset(KEYS.values())
ONE: Final = b"\x01"

_decode = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode

MOST_PAIRS: Final = 4096
"""Pairs of an option that are read, more than any client sends: each takes a microsecond, and a frame has room for millions."""

DEPTH: Final = 64
"""Deepest nesting of an option that is kept with a reject."""

LONGEST_KEY: Final = 5 + max(map(len, KEYS.values()))


class Option(NamedTuple):
    """The parts of an option map that Headrace uses.

    `chunk`: the chunk's content; `reply`: its encoding as received (both None: the client asks for no acknowledgement);
    `metadata`: in Message mode the event's, encoded, unless it is empty (Fluent Bit has no other place for it there); `raw`:
    the whole map; `problem`: why the option is invalid; `size`: how many entries it announces, if that is a small number;
    `text`: the whole map of a message that is JSON.
    """

    chunk: bytes | None = None
    reply: bytes | None = None
    compressed: str | None = None
    signal: int = 0
    metadata: bytes | None = None
    raw: bytes = NOTHING
    problem: str | None = None
    size: int = 1
    text: bytes = b""

    def json(self) -> bytes:
        """Returns the whole map as JSON."""
        return self.text or as_json(self.raw)


NONE: Final = Option()


def read(message: ForwardMessage) -> Option:
    """Returns the option of `message`. Never raises."""
    index = message.option_index
    kind = message.kind(index)
    if kind is None or kind is NIL:  # nil: Docker 18's log driver
        return NONE
    raw = message.element(index)
    if kind is not MAP:
        return Option(raw=raw, problem="the option is not a map")
    if raw == NOTHING:
        return NONE
    pairs = _pairs(raw)
    values = _values(raw, pairs)
    problem = None if pairs <= MOST_PAIRS else f"an option of {pairs} pairs"
    reply = values.get("chunk")
    chunk = None
    if reply is not None:
        if KINDS[reply[0]] in TEXTS:
            chunk = content(reply)
        elif (number := _integer(reply)) is not None:
            chunk = str(number).encode()
        elif KINDS[reply[0]] is NIL:
            reply = None
        else:
            return Option(raw=raw, problem="the chunk is neither a str, a bin nor an integer")
    compressed = content(values["compressed"]).decode("utf-8", "replace") if "compressed" in values else None
    signal = _integer(values["fluent_signal"]) if "fluent_signal" in values else None
    metadata = values.get("metadata", NOTHING)
    kept = metadata != NOTHING and KINDS[metadata[0]] is MAP
    return Option(
        chunk=chunk,
        reply=reply,
        compressed=compressed,
        signal=signal or 0,
        metadata=metadata if kept else None,
        raw=raw,
        problem=problem,
        size=1 if kept else _small(values.get("size", ONE)),
    )


def as_json(raw: bytes) -> bytes:
    """Returns a msgpack object as JSON; ``null`` if it is nested too deep."""
    try:
        return to_json(raw, DEPTH)
    except ValueError:
        return b"null"


def _integer(raw: bytes) -> int | None:
    """Returns the value of a msgpack integer; None for any other object."""
    if KINDS[raw[0]] is not MsgpackKind.OTHER:
        return None
    try:
        value = unpack(raw)
    except ValueError:  # a timestamp ext with an invalid length
        return None
    return value if type(value) is int else None


def _small(raw: bytes) -> int:
    """Returns the value of a msgpack integer below 256; 1 for any other object."""
    return raw[-1] if (len(raw) == 1 and raw[0] < 0x80) or (len(raw) == 2 and raw[0] == 0xCC) else 1


def _pairs(raw: bytes) -> int:
    """Returns how many pairs a msgpack map has; up to `MOST_PAIRS`, an upper bound."""
    if len(raw) <= 2 * MOST_PAIRS:
        return MOST_PAIRS
    if raw[0] < 0xDE:
        return raw[0] & 0x0F
    return int.from_bytes(raw[1 : 3 if raw[0] == 0xDE else 5], "big")


def _values(raw: bytes, pairs: int) -> dict[str, bytes]:
    """Returns the values that Headrace uses, as received; the last one of a repeated key. `pairs`: how many it has at most."""
    try:
        if pairs <= MOST_PAIRS:
            return {key: bytes(value) for key, value in _decode(raw).items() if key in NAMES}
    except (msgspec.MsgspecError, ValueError, RecursionError):  # a key that is no text
        pass
    unpacker = new_unpacker()
    unpacker.feed(raw)
    found: dict[str, bytes] = {}
    for _ in range(min(unpacker.read_map_header(), MOST_PAIRS)):
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
    if known is None and KINDS[raw[0]] in (MsgpackKind.STR, MsgpackKind.BIN):
        text = content(raw).decode("utf-8", "replace")
        return text if text in NAMES else None
    return known
