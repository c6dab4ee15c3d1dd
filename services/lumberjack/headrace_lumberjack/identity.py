"""Event ids of v2, from the fields that identify an event in its Beat; never from the raw bytes.

Filebeat writes JSON keys in a new random order at every attempt, so the hash is over an object's canonical form.
"""

from __future__ import annotations

import json
import struct
from binascii import hexlify
from collections.abc import Generator
from hashlib import blake2b
from typing import Any, Final, TypeVar

import orjson
from headrace_common.record.contract import DETERMINISTIC
from headrace_common.record.json_object import SHORT, TEXT_BYTES
from headrace_common.record.json_text import Bytes, utf8_of
from headrace_common.record.windows_1252 import STEPS, TOKEN
from headrace_common.session.memory import Memory
from msgspec import Raw, Struct, UnsetType
from msgspec.json import Decoder

from headrace_lumberjack.fields import BeatsFields, LogFields

_SORTED: Final = orjson.OPT_SORT_KEYS
_u32: Final = struct.Struct(">I").pack
_SUM_BYTES: Final = 32

_QUOTE: Final = ord('"')

_DIGEST: Final = b"\1"
"""First byte of the digest that replaces a long document, in hexadecimal. No JSON begins so."""

_Named = tuple[str, str, int, bytes]
"""An agent, its run, an offset, and what names the input as written."""

_Document = TypeVar("_Document", Raw, Raw | UnsetType)


def _field(data: bytes) -> bytes:
    return _u32(len(data)) + data


PROTOCOL: Final = "lumberjack"
_PROTOCOL: Final = _field(PROTOCOL.encode())


class Names:
    """Makes the same ids as `headrace_common.record.event.deterministic_id`, but encodes what many events share only once:
    `memory` keeps what the ids of the events of one file begin to hash.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def of_long(
        self, fields: BeatsFields, stream: str | None, time: bytes, event: Bytes
    ) -> Generator[None, None, bytes | None]:
        """Does the same as `of`, for an event of any length; yields between steps. A document of more than `SHORT` bytes is
        replaced in `fields` by its `digest`, which is hashed.
        """
        for name in ("tags", "fields", "data_stream"):
            setattr(fields, name, (yield from _shortened(getattr(fields, name))))
        if type(fields.log) is LogFields:
            fields.log.file = yield from _shortened(fields.log.file)
        if fields.message is None and len(event) > SHORT and (message := _message(event).message):
            first = memoryview(message)[0]
            if first == _QUOTE and len(message) > TEXT_BYTES:  # it was not read: see `JsonObject`
                return self.of(fields, stream, time, event, memoryview(message))
        if fields.message is None and len(event) > SHORT:
            return self.of(fields, stream, time, event, (yield from digest(event)))
        return self.of(fields, stream, time, event)

    def of(
        self,
        fields: BeatsFields,
        stream: str | None,
        time: bytes,
        event: Bytes,
        content: bytes | memoryview | None = None,
    ) -> bytes | None:
        """Returns the id of an event with these fields, or None if they do not identify it. `time`: its `@timestamp` as written.
        `event`: at most `SHORT` bytes, unless its `content` is given: its message as JSON, or its digest.

        The hash covers `agent.id`, `agent.ephemeral_id` and `log.file`, or `@metadata._id` in their place; what distinguishes two
        inputs on one file: `stream`, `event.dataset`, `tags`, `fields` and `data_stream`; `log.offset`, unless there
        is an `_id`; `@timestamp`, `message`, and the event's length. Without a message, the whole event takes its place,
        marked by one more, empty field. JSON is hashed with sorted keys, an absent text as an empty one.
        """
        metadata, message = fields.metadata, fields.message
        if metadata is not None and metadata.id:
            begun = _PROTOCOL + _field(metadata.id.encode()) + self._input(fields, stream)
            place = b""
        else:
            named = _named_by(fields)
            if named is None:
                return None
            begun = self._origin(named, fields, stream)
            place = _field(b"%d" % named[2])
        before, after = b"".join((begun, place, _field(time))), _field(_u32(len(event)))
        if isinstance(content, memoryview):
            state = blake2b(before + _u32(sum(map(len, utf8_of(content)))), digest_size=16)
            for piece in utf8_of(content):
                state.update(piece)
            state.update(after)
            return DETERMINISTIC + hexlify(state.digest())
        if message is not None:
            written = _field(message.encode())
        else:
            written = _field(canonical(bytes(event)) if content is None else content) + _field(b"")
        return DETERMINISTIC + hexlify(blake2b(before + written + after, digest_size=16).digest())

    def _origin(self, named: _Named, fields: BeatsFields, stream: str | None) -> bytes:
        """Returns `begun` from the memory, where it is put if it is not there."""
        (agent, run, _, key), dataset = named, _dataset(fields)
        place = (Names, key, agent, run, stream, dataset)
        begun: bytes | None = self._memory.get(place)
        if begun is None:
            begun = self._named(named, fields, stream)
            size = len(key) + 4 * sum(map(len, (agent, run, stream or "", dataset or "")))
            self._memory.put(place, begun, size + len(begun))
        return begun

    def begun(self, fields: BeatsFields, stream: str | None) -> bytes | None:
        """Returns the hashed beginning of the id of an event with these fields, up to its offset; None if they give it no such
        id. `fields`: of at most `SHORT` bytes, without `@metadata._id`.
        """
        named = _named_by(fields)
        return None if named is None else self._named(named, fields, stream)

    def _named(self, named: _Named, fields: BeatsFields, stream: str | None) -> bytes:
        agent, run, _, key = named
        file = _canonical(key[: key.index(b"\0")])
        origin = b"".join(map(_field, (agent.encode(), run.encode(), file)))
        return _PROTOCOL + origin + self._input(fields, stream)

    def _input(self, fields: BeatsFields, stream: str | None) -> bytes:
        """Returns the fields that distinguish two inputs on the same file and do not change when an event is sent again."""
        texts = [(text or "").encode("utf-8", "surrogatepass") for text in (stream, _dataset(fields))]
        documents = map(bytes, (fields.tags, fields.fields, fields.data_stream))
        return b"".join(map(_field, (*texts, *map(_canonical, documents))))


def _dataset(fields: BeatsFields) -> str | None:
    return None if fields.event is None else fields.event.dataset


def _named_by(fields: BeatsFields) -> _Named | None:
    """Returns the agent and its run, the offset, and what names the input as written, from its file. None: they name no event."""
    agent, log = fields.agent, fields.log
    if agent is None or type(log) is not LogFields or type(log.file) is not Raw:
        return None
    name, run, offset = agent.id, agent.ephemeral_id, log.offset
    key = b"\0".join((log.file, fields.tags, fields.fields, fields.data_stream))  # JSON has no NUL
    if name is None or run is None or offset is None or key.startswith(b"null\0"):
        return None
    return name, run, offset, key


class _Message(Struct):
    """The message of an event, as written."""

    message: Raw = Raw(b"")


_message = Decoder(_Message).decode


def _shortened(document: _Document) -> Generator[None, None, _Document]:
    """Returns a document, or the digest of a long one, in the form that `_canonical` takes."""
    if type(document) is not Raw or len(document) <= SHORT:
        return document
    return Raw(_DIGEST + (yield from digest(memoryview(document))).hex().encode())


def _canonical(document: bytes) -> bytes:
    """Returns `canonical`, or the digest that `document` is."""
    return bytes.fromhex(document[1:].decode()) if document.startswith(_DIGEST) else canonical(document)


def canonical(document: bytes) -> bytes:
    """Sorts the keys of valid JSON at every level: equal for every order of keys, different for different content.

    If orjson does not reproduce the same bytes (a repeated key, a number beyond 64 bits or written in another way, white
    space), it might lose something. Then numbers stay text and repeated keys are kept, after a NUL.
    """
    try:
        value = orjson.loads(document)
        if orjson.dumps(value) == document:
            return orjson.dumps(value, option=_SORTED)
    except (ValueError, TypeError):
        pass
    tree = json.loads(document, object_pairs_hook=_members, parse_float=_Number, parse_int=_Number)
    return b"\0" + _write(tree).encode()


def digest(document: Bytes) -> Generator[None, None, bytes]:
    """Returns 32 bytes that are equal for every order of keys of valid JSON, and different for different content as written.

    The sum of the hashes of all values, each with its place and as written. Yields after each `STEPS` tokens; takes about 2 µs a
    token.
    """
    total, key = 0, b""
    places, counts, maps = [b""], [0], [False]  # of the open containers
    for number, found in enumerate(TOKEN.finditer(document), start=1):
        if number % STEPS == 0:
            yield
        if found.end(1) - found.start(1) > SHORT and (key or not maps[-1]):  # a long text is not copied
            state = blake2b(b'%b\0%b\0"' % (places[-1], key or b"%d" % counts[-1]), digest_size=_SUM_BYTES)
            state.update(memoryview(document)[found.start(1) : found.end(1)])
            state.update(b'"')
            total += int.from_bytes(state.digest(), "big")
            counts[-1] += 1
            key = b""
            continue
        text, opens, closes, plain = found.groups()
        if closes:
            value = places.pop() + closes + b"%d" % counts.pop()
            maps.pop()
        elif text is not None and maps[-1] and not key:
            key = b'"%b"' % text
            continue
        else:
            written = opens or plain if text is None else b'"%b"' % text
            value = b"%b\0%b\0%b" % (places[-1], key or b"%d" % counts[-1], written)
            counts[-1] += 1
            key = b""
        hashed = blake2b(value, digest_size=_SUM_BYTES).digest()
        if opens:
            places.append(hashed)
            counts.append(0)
            maps.append(opens == b"{")
        else:
            total += int.from_bytes(hashed, "big")
    return (total % (1 << 8 * _SUM_BYTES)).to_bytes(_SUM_BYTES, "big")


class _Number(str):
    """A number as written."""

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
