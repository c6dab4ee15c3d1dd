"""Event ids of v2, from the fields that name an event in its beat; never from the raw bytes.

Filebeat writes JSON keys in a new random order at every attempt, so what is hashed of an object is its canonical form.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, Final

import orjson
from headrace_common.event import DETERMINISTIC, Protocol

REMEMBERED: Final = 1024
"""Files whose part of the id is kept encoded."""

_SORTED: Final = orjson.OPT_SORT_KEYS
_u32: Final = struct.Struct(">I").pack
_LENGTHS: Final = tuple(_u32(number) for number in range(2048))


def _length(number: int) -> bytes:
    return _LENGTHS[number] if number < 2048 else _u32(number)


def _field(data: bytes) -> bytes:
    return _length(len(data)) + data


_PROTOCOL: Final = _field(Protocol.LUMBERJACK.value.encode())


class Names:
    """Makes ids as `headrace_common.event.deterministic_id` does, with what many events have in common encoded once."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, str, bytes], bytes] = {}

    def by_origin(
        self, agent: str, ephemeral: str, file: bytes, offset: int, time: str, message: str | None, event: bytes
    ) -> bytes:
        """Over `agent.id`, `agent.ephemeral_id`, `log.file` (JSON), `log.offset`, `@timestamp`, `message`.

        Without a message the whole event takes its place, and one empty field more says so.
        """
        key = (agent, ephemeral, file)
        origin = self._origins.get(key)
        if origin is None:
            if len(self._origins) >= REMEMBERED:
                self._origins.clear()
            origin = _PROTOCOL + _field(agent.encode()) + _field(ephemeral.encode()) + _field(canonical(file))
            self._origins[key] = origin
        place, at = b"%d" % offset, time.encode()
        if message is None:
            return _hash(b"".join((origin, _field(place), _field(at), _instead(event))))
        text = message.encode()
        return _hash(b"".join((origin, _LENGTHS[len(place)], place, _length(len(at)), at, _length(len(text)), text)))

    def by_id(self, document: str, time: str, message: str | None, event: bytes) -> bytes:
        """Over `@metadata._id`, `@timestamp` and `message`; without a message as above."""
        content = _instead(event) if message is None else _field(message.encode())
        return _hash(b"".join((_PROTOCOL, _field(document.encode()), _field(time.encode()), content)))


def _instead(event: bytes) -> bytes:
    """What takes the message's place."""
    return _field(canonical(event)) + _field(b"")


def _hash(fields: bytes) -> bytes:
    return DETERMINISTIC + hashlib.blake2b(fields, digest_size=16).hexdigest().encode()


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
