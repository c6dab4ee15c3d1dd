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


def _field(data: bytes) -> bytes:
    return _u32(len(data)) + data


_PROTOCOL: Final = _field(Protocol.LUMBERJACK.value.encode())


class Names:
    """Makes ids as `headrace_common.event.deterministic_id` does, with what many events have in common encoded once."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, str, bytes], bytes] = {}

    def by_origin(
        self, agent: str, ephemeral: str, file: bytes, offset: int, time: str, message: bytes | None, event: bytes
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
        return _id((origin, _field(b"%d" % offset), _field(time.encode()), _content(message, event)))

    def by_id(self, document: str, time: str, message: bytes | None, event: bytes) -> bytes:
        """Over `@metadata._id`, `@timestamp` and `message`; without a message as above."""
        return _id((_PROTOCOL, _field(document.encode()), _field(time.encode()), _content(message, event)))


def _content(message: bytes | None, event: bytes) -> bytes:
    return _field(canonical(event)) + _field(b"") if message is None else _field(message)


def _id(parts: tuple[bytes, ...]) -> bytes:
    return DETERMINISTIC + hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest().encode()


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
