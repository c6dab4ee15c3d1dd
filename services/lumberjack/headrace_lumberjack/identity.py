"""Event ids of J frames, from the fields that identify an event in its Beat."""

from __future__ import annotations

import sys
from typing import Final

import orjson
from headrace_common.record.event import hashed_field, hashed_id, id_fields
from headrace_common.record.json_object import SHORT
from headrace_common.record.json_text import Bytes
from headrace_common.session.memory import Memory
from msgspec import Raw, Struct
from msgspec.json import Decoder

from headrace_lumberjack.fields import BeatsFields, LogFields, stream_of

PROTOCOL: Final = "lumberjack"


def identity(fields: BeatsFields, event: Bytes, memory: Memory) -> bytes | None:
    """Returns the id of an event with these fields, or None if they do not identify it: it depends on them, never on their order.

    The hash covers `agent.id`, `agent.ephemeral_id` and `log.file`, or `@metadata._id` in their place; what distinguishes two
    inputs on one file: the stream, `event.dataset`, `tags`, `fields` and `data_stream`; `log.offset`, unless there is an `_id`;
    `@timestamp`, `message` (as written, if it has more than `TEXT_BYTES`), and the event's length. Without a message,
    the whole event takes its place, marked by one more, empty field. JSON is hashed as `canonical`, an absent text as an empty
    one. `memory` keeps what the ids of the events of one file begin to hash.
    """
    if fields.time is None:
        return None
    if fields.metadata is not None and fields.metadata.id:
        begun: bytes | None = id_fields(PROTOCOL, fields.metadata.id.encode()) + _input(fields, stream_of(fields))
    else:
        begun = _of_file(fields, memory)
    if begun is None:
        return None
    mark = b""
    if fields.message is not None:
        content = fields.message.encode()
    elif len(event) > SHORT and (message := bytes(_message(event).message)).startswith(b'"'):
        content = message  # too long a text to be read: see `JsonObject`
    else:
        content, mark = canonical(event), hashed_field(b"")
    length = hashed_field(len(event).to_bytes(4, "big"))
    time, size = hashed_field(fields.time.encode()), len(content).to_bytes(4, "big")
    return hashed_id(b"".join((begun, time, size, content, mark, length)))


def beginning(fields: BeatsFields, stream: str | None) -> bytes | None:
    """Returns what the id of an event with these fields begins to hash, up to its offset; None if they do not identify it."""
    agent, log = fields.agent, fields.log
    if agent is None or type(log) is not LogFields or type(log.file) is not Raw or bytes(log.file) == b"null":
        return None
    if agent.id is None or agent.ephemeral_id is None or log.offset is None:
        return None
    origin = id_fields(PROTOCOL, agent.id.encode(), agent.ephemeral_id.encode(), canonical(log.file))
    return origin + _input(fields, stream)


def _of_file(fields: BeatsFields, memory: Memory) -> bytes | None:
    """Returns `beginning`, from the memory where it is there, with the offset."""
    agent, log = fields.agent, fields.log
    if agent is None or type(log) is not LogFields or log.offset is None or type(log.file) is not Raw:
        return None
    stream, dataset = stream_of(fields), None if fields.event is None else fields.event.dataset
    written = b"\0".join((log.file, fields.tags, fields.fields, fields.data_stream))  # JSON has no NUL
    place = (written, agent.id, agent.ephemeral_id, stream, dataset)
    begun: bytes | None = memory.get(place)
    if begun is None and (begun := beginning(fields, stream)) is not None:
        memory.put(place, begun, len(begun) + sum(map(sys.getsizeof, place)))
    return None if begun is None else begun + hashed_field(b"%d" % log.offset)


def _input(fields: BeatsFields, stream: str | None) -> bytes:
    """Returns the fields that distinguish two inputs on the same file and do not change when an event is sent again."""
    dataset = None if fields.event is None else fields.event.dataset
    texts = [(text or "").encode("utf-8", "surrogatepass") for text in (stream, dataset)]
    documents = map(canonical, (fields.tags, fields.fields, fields.data_stream))
    return b"".join(map(hashed_field, (*texts, *documents)))


def canonical(document: Bytes | Raw) -> bytes:
    """Returns valid JSON with the keys sorted at every level: equal for every order of keys, different for different content.

    Filebeat writes keys in a new random order at every attempt. A document stays as written if it has more than `SHORT` bytes, or
    orjson would not write the same (a repeated key, a number beyond 64 bits or written in another way, white space).
    """
    written = bytes(document)
    if len(written) <= SHORT:
        try:
            value = orjson.loads(written)
            if orjson.dumps(value) == written:
                return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except ValueError:
            pass
    return written


class _Message(Struct):
    """The message of an event, as written."""

    message: Raw = Raw(b"")


_message = Decoder(_Message).decode
