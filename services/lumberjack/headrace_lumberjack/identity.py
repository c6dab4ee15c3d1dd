"""Event ids of v2, from the fields that name an event in its beat; never from the raw bytes.

Filebeat writes JSON keys in a new random order at every attempt, so what is hashed of an object is its canonical form.
"""

from __future__ import annotations

import json
import struct
from binascii import hexlify
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson
from headrace_common.event import DETERMINISTIC, Protocol
from msgspec import Raw

from headrace_lumberjack.fields import Fields, Log

REMEMBERED: Final = 256
"""Files whose part of the id is kept encoded."""

MEMORABLE: Final = 1024
"""Bytes of what an origin is made of, above which it is not kept: a client may call a file anything."""

_SORTED: Final = orjson.OPT_SORT_KEYS
_u32: Final = struct.Struct(">I").pack
_KNOWN: Final = 2048
_LENGTHS: Final = tuple(_u32(number) for number in range(_KNOWN))


def _field(data: bytes) -> bytes:
    return _u32(len(data)) + data


_PROTOCOL: Final = _field(Protocol.LUMBERJACK.value.encode())


class _Origin(NamedTuple):
    """A file, as an agent names it in one of its runs. `state`: the hash over the fields so far."""

    agent: str
    run: str
    state: blake2b


class Names:
    """Makes ids as `headrace_common.event.deterministic_id` does, with what many events have in common hashed once."""

    def __init__(self) -> None:
        self._origins: dict[bytes, _Origin] = {}

    def of(self, fields: Fields, time: bytes, event: bytes) -> bytes | None:
        """The id of an event with these fields, or None where they do not name it. `time`: its `@timestamp` as written.

        Over `@metadata._id`, `@timestamp` and `message`; else over `agent.id`, `agent.ephemeral_id`, `log.file` (JSON),
        `log.offset`, `@timestamp` and `message`. Without a message the whole event takes its place, and one empty field
        more says so.
        """
        metadata, agent, log, message = fields.metadata, fields.agent, fields.log, fields.message
        if metadata is not None and metadata.id:
            content = _field(message.encode()) if message is not None else b"".join(_whole(event))
            named = _PROTOCOL + _field(metadata.id.encode()) + _field(time) + content
            return DETERMINISTIC + hexlify(blake2b(named, digest_size=16).digest())
        if agent is None or type(log) is not Log or type(log.file) is not Raw:
            return None
        name, run, offset, file = agent.id, agent.ephemeral_id, log.offset, bytes(log.file)
        if name is None or run is None or offset is None or file == b"null":
            return None
        origin = self._origins.get(file)
        if origin is None or origin[0] != name or origin[1] != run:
            origin = self._origin(name, run, file)
        place = b"%d" % offset
        at = _LENGTHS[len(time)] if len(time) < _KNOWN else _u32(len(time))
        if message is None:
            size, content = _whole(event)
        else:
            content = message.encode()
            size = _LENGTHS[len(content)] if len(content) < _KNOWN else _u32(len(content))
        state = origin[2].copy()
        state.update(b"".join((_LENGTHS[len(place)], place, at, time, size, content)))
        return DETERMINISTIC + hexlify(state.digest())

    def _origin(self, agent: str, run: str, file: bytes) -> _Origin:
        named = _PROTOCOL + _field(agent.encode()) + _field(run.encode()) + _field(canonical(file))
        origin = _Origin(agent, run, blake2b(named, digest_size=16))
        if len(agent) + len(run) + len(file) <= MEMORABLE:
            if len(self._origins) >= REMEMBERED:
                self._origins.clear()
            self._origins[file] = origin
        return origin


def _whole(event: bytes) -> tuple[bytes, bytes]:
    """What takes the message's place: the event's length, and the event with an empty field."""
    content = canonical(event)
    return _u32(len(content)), content + _u32(0)


def canonical(document: bytes) -> bytes:
    """Valid JSON with its keys sorted at every level: the same for every order of keys, different for different content.

    Where orjson cannot give back the very same bytes (a repeated key, a number beyond 64 bits or written in another way,
    white space) it could lose something: then numbers stay text and repeated keys stay there, behind a NUL.
    """
    try:
        value = orjson.loads(document)
        if orjson.dumps(value) == document:
            return orjson.dumps(value, option=_SORTED)
    except (ValueError, TypeError):
        pass
    tree = json.loads(document, object_pairs_hook=_members, parse_float=_Number, parse_int=_Number)
    return b"\0" + _write(tree).encode()


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """An object's members."""


def _members(pairs: list[tuple[str, Any]]) -> _Members:
    return _Members(pairs)


def _write(value: Any) -> str:
    if type(value) is _Number:
        return str(value)
    if type(value) is _Members:
        members = sorted(f"{json.dumps(key)}:{_write(item)}" for key, item in value)
        return "{" + ",".join(members) + "}"
    if type(value) is list:
        return "[" + ",".join(map(_write, value)) + "]"
    return json.dumps(value)
