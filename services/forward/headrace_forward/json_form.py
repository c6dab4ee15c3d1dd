"""Forward as JSON: the same messages, for a connection whose first byte is ``[`` or ``{``. Pure.

fluentd accepts JSON on its msgpack port (in_forward.rb, `read_messages`); fluent-logger-golang sends it with `MarshalAsJSON`.
Values follow each other with or without white space; `null` is a heartbeat. Brackets are the framing, so a value that is
unbalanced or not JSON ends the connection. A record goes to Kafka as received, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, cast

import msgspec
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.contract import Reason
from headrace_common.record.event import Part
from headrace_common.record.json_object import SHORT, Fault, JsonObject
from headrace_common.record.json_text import Bytes
from headrace_common.session.interface import Run
from headrace_common.session.parser import Cost, Parser, Steps, UpTo
from typing_extensions import override

from headrace_forward.entries.builder import EntryBuilder
from headrace_forward.entries.option import Option
from headrace_forward.events.message import NO_TAG, MessageFrame

FIRST: Final = b"[{"
"""First bytes of a connection that speaks JSON. No msgpack message begins with them."""
PIECE: Final = 4 << 10  # bytes that are searched for the end of a message at once
DEEPEST: Final = 512  # open brackets that the decoder follows; a JSON reader follows as many
OPTION_DEPTH: Final = 64  # nesting of an option
STEPS: Final = 1024  # brackets, commas and texts between two pauses: about half a millisecond

_BETWEEN: Final = re.compile(rb"(?:[ \t\r\n]++|null)*+")
_MARK: Final = re.compile(rb'["\[\]{}]')
_REST_OF_TEXT: Final = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)


class _Elements(msgspec.Struct, array_like=True):
    """The first elements of a message. Further elements are skipped."""

    tag: msgspec.Raw = msgspec.Raw()
    second: msgspec.Raw = msgspec.Raw()
    third: msgspec.Raw = msgspec.Raw()
    fourth: msgspec.Raw = msgspec.Raw()


class _Map(msgspec.Struct):
    """An option, or a record, whose fields are not read."""

    chunk: str | int | None = None


_message = msgspec.json.Decoder(_Elements).decode
_pair = msgspec.json.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_INVALID: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class JsonMessage(NamedTuple):
    """One complete array, the texts of its first elements, and whether the second is its entries, not a time."""

    raw: bytes
    elements: list[memoryview]
    listed: bool


class JsonDecoder(Parser[JsonMessage]):
    """Decodes bytes, split anywhere, into messages of at most `frame_bytes`."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        super().__init__()

    @override
    def messages(self) -> Steps:
        while True:
            self.begins()
            piece = yield UpTo(PIECE)
            yield Cost(PIECE)
            between = _BETWEEN.match(piece)
            if between and between[0]:
                self.unread(piece[between.end() :])
            elif b"null".startswith(piece):
                self.unread(piece)
                self.unread((yield len(piece) + 1))
            elif piece[:1] == b"[":
                raw = yield from self._array(piece)
                try:
                    elements = [memoryview(each) for each in msgspec.structs.astuple(_message(raw))]
                except _INVALID as error:
                    raise ProtocolError(f"not JSON: {error}") from None
                yield JsonMessage(raw, elements, bytes(elements[1][:1]) in (b"[", b'"'))
            else:
                raise ProtocolError("neither a message nor a heartbeat")

    def _array(self, piece: bytes) -> Generator[Any, bytes, bytes]:
        """Returns the array that begins with `piece`."""
        raw, level, inside = bytearray(), 0, False
        while not raw or level:
            end, level, inside = _balance(piece, level, inside=inside)
            raw += piece[:end]
            self.held = len(raw)
            if len(raw) > self._frame_bytes:
                raise ProtocolError("a message is too large", limit="LIMITS__FRAME_BYTES")
            yield Cost(PIECE << 5)  # of nothing but brackets
            piece = piece[end:]
            if level:
                piece += yield UpTo(PIECE)
        self.unread(piece)
        return bytes(raw)


def _balance(piece: bytes, level: int, *, inside: bool) -> tuple[int, int, bool]:
    """Returns where an array ends, or only half an escape follows; how many brackets are open there; whether it is in a text."""
    at = 0
    while True:
        if inside and (rest := _REST_OF_TEXT.match(piece, at)):
            at, inside = rest.end(), not rest[1]
        mark = None if inside else _MARK.search(piece, at)
        if mark is None:
            return at if inside else len(piece), level, inside
        at, inside = mark.end(), mark[0] == b'"'
        level += 0 if inside else 1 if mark[0] in FIRST else -1
        if level > DEEPEST:
            raise ProtocolError("nested too deep to be read", limit="LIMITS__DEPTH")
        if not level:
            return at, level, inside


def read_option(message: JsonMessage, most: int) -> Option:
    """Returns the option of `message`, of at most `most` bytes. Never raises."""
    raw = bytes(message.elements[2 if message.listed else 3])
    if raw in (b"", b"null"):
        return Option()
    asked = None if len(raw) > most else JsonObject(_Map, OPTION_DEPTH).quick(raw)
    if asked is None:
        return Option(problem="the option is too large, or no JSON object with a chunk of a plain type")
    if asked.chunk is None:
        return Option()
    return Option(chunk=str(asked.chunk).encode(), reply=b'{"ack":%b}' % msgspec.json.encode(asked.chunk))


class JsonFrame(MessageFrame):
    """One JSON message in Message or Forward mode. Packed entries are bytes, which JSON does not have."""

    __slots__ = ()

    _message: JsonMessage

    @override
    def runs(self) -> Iterator[Run]:
        name, second, record, _ = self._message.elements
        problem, tag = self._option.problem, self._tag()
        if bytes(second[:1]) == b'"' or not (second if self._message.listed else record):
            problem = "a message in JSON is [tag, entries, option] or [tag, time, record, option]"
        if problem is not None or tag is None:
            yield self._whole(Reason.BAD_MESSAGE, problem or NO_TAG)
            return
        body = entries = second
        if not self._message.listed:
            body = memoryview(b"".join((b"[", second, b",", record, b"]")))
            entries = memoryview(b"".join((b"[", body, b"]")))
        builder = yield from self._builder(tag, tag.encode() or bytes(name), body)
        index = 0
        for start, entry in _entries(entries):
            if entry is None:
                yield 0
            elif index == self._origin.limits.frame_events:
                rest = b"[" + bytes(body[start:]).lstrip()
                yield builder.tail(rest, index, Reason.TOO_MANY_EVENTS, f"more than {index:,} entries")
                return
            else:
                yield (yield from self._entry(builder, entry, index))
                index += 1

    @override
    def _tag(self) -> str | None:
        raw = self._message.elements[0]
        try:
            return msgspec.json.decode(raw, type=str) if len(raw) - 2 <= self._origin.tag_bytes else None
        except _INVALID:
            return None

    def _entry(self, builder: EntryBuilder, raw: bytes, index: int) -> Generator[int, None, Part]:
        """Returns one entry's event or reject."""
        try:
            time, record = (memoryview(each) for each in _pair(raw))
        except _INVALID:
            return builder.tail(raw, index, Reason.BAD_RECORD, "an entry is [time, record]")
        reader, value = JsonObject(_Map, builder.depth), cast("Bytes", record)
        notes: list[bytes] = []
        if len(record) > SHORT or reader.quick(bytes(record)) is None:
            found = yield from reader.read(record, builder.event_bytes)
            if isinstance(found, Fault):
                return builder.tail(raw, index, *found)
            value = found.value
            notes = [about[1:-1]] if (about := found.attributes(None)) else []
        try:
            given = None if bytes(time) == b"null" else Decimal(bytes(time).decode())
            return builder.event(raw, index, given, value, notes)
        except (InvalidOperation, ValueError):
            detail = f"{bytes(time[:40]).decode('utf-8', 'replace')} is no time: seconds since 1970, or null"
            return builder.tail(raw, index, Reason.BAD_TIME, detail)


def _entries(text: memoryview) -> Iterator[tuple[int, bytes | None]]:
    """Yields the start and the text of each element of a valid array, and None where others may run."""
    level, start = 0, 1
    for number, found in enumerate(_TOKEN.finditer(text)):
        token = text[found.start()]
        level += (token in FIRST) - (token in b"]}")
        if level == 0 or (token == 0x2C and level == 1):
            if element := bytes(text[start : found.start()]).strip():
                yield start, element
            start = found.end()
        elif number % STEPS == 0:
            yield start, None
