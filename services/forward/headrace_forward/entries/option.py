"""A message's option map: the client's requests to the server."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from headrace_forward.entries.values import unpack
from headrace_forward.kinds import KINDS, MAP, NIL, OTHER, TEXTS, content
from headrace_forward.wire import ACK_KEY, ForwardMessage

NOTHING: Final = b"\x80"


class _Asked(msgspec.Struct):
    """The values that Headrace uses, as received: the last ones of repeated keys. All others are skipped."""

    chunk: msgspec.Raw = msgspec.Raw(b"\xc0")
    fluent_signal: msgspec.Raw = msgspec.Raw(b"\xc0")
    metadata: msgspec.Raw = msgspec.Raw(NOTHING)


_decode = msgspec.msgpack.Decoder(_Asked).decode


class Option(NamedTuple):
    """The parts of an option map that Headrace uses.

    `chunk`: the chunk's content; `reply`: its acknowledgement, in which the chunk is encoded as received (both None: the client
    asks for none);
    `metadata`: in Message mode the event's, encoded, unless it is empty (Fluent Bit has no other place for it there);
    `problem`: why the option is invalid.
    """

    chunk: bytes | None = None
    reply: bytes | None = None
    metadata: bytes | None = None
    problem: str | None = None


NONE: Final = Option()


def read(message: ForwardMessage) -> Option:
    """Returns the option of `message`. Never raises."""
    raw = message.element(message.option_index)
    if raw in (b"", b"\xc0", NOTHING):  # nil: Docker 18's log driver
        return NONE
    try:
        asked = _decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Option(problem="the option is not a map, or a key of it is no text")
    reply, chunk = bytes(asked.chunk), None
    if KINDS[reply[0]] in TEXTS:
        chunk = content(reply)
    elif (number := _integer(reply)) is not None:
        chunk = b"%d" % number
    elif KINDS[reply[0]] != NIL:
        return Option(problem="the chunk is neither a str, a bin nor an integer")
    metadata = bytes(asked.metadata)
    kept = metadata if metadata != NOTHING and KINDS[metadata[0]] == MAP else None
    signal = _integer(bytes(asked.fluent_signal))
    problem = f"fluent_signal {signal}: no logs, but Fluent Bit's metrics or traces" if signal else None
    return Option(chunk, None if chunk is None else ACK_KEY + reply, kept, problem)


def _integer(raw: bytes) -> int | None:
    """Returns the value of a msgpack integer; None for any other object."""
    if KINDS[raw[0]] != OTHER:
        return None
    try:
        value = unpack(raw)
    except ValueError:  # a timestamp ext with an invalid length
        return None
    return value if type(value) is int else None
