"""A JSON message as a frame. The content of its entries goes to Kafka byte for byte."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import Part
from headrace_common.record.json_object import SHORT, deepest, may_be_deep
from headrace_common.record.json_text import Bytes, is_utf8, member_of
from headrace_common.record.windows_1252 import MendedJson, mended
from headrace_common.session.interface import PAUSE, Pause, Ticket, paused
from typing_extensions import override

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.builder import EntryBuilder
from headrace_forward.entries.times import BadTimeError
from headrace_forward.events.message import MessageFrame, MessageLimits
from headrace_forward.events.origin import Origin
from headrace_forward.json_form.values import elements, integer, pair, pairs, string
from headrace_forward.json_form.wire import JsonMessage, JsonOption


class JsonFrame(MessageFrame):
    """One JSON message in Message or Forward mode. Packed entries are bytes, which JSON does not have."""

    __slots__ = ("_message",)

    def __init__(
        self,
        message: JsonMessage,
        option: JsonOption,
        ticket: Ticket,
        received_ms: int,
        origin: Origin,
        limits: MessageLimits,
    ) -> None:
        super().__init__(message.raw, message.size, option, ticket, received_ms, origin, limits)
        self._message = message

    @override
    def parts(self) -> Iterator[Part | Pause]:
        message = self._message
        problem = self._problem()
        if problem is not None:
            reason, detail = problem
            yield self._whole(reason, detail)
            return
        tag, tag_bytes, attributes = _tag(message.element(0))
        if message.option_index == 3:
            time = message.element(1)
            if self._option.metadata is not None:  # in the form that entries of the other mode have
                time = b"[" + time + b"," + self._option.metadata + b"]"
            body = b"".join((b"[", time, b",", message.view(2), b"]"))
            builder = yield from self._builder(tag, tag_bytes, attributes, body)
            yield (yield from _part(builder, body, 0))
            return
        entries = message.view(1)
        builder = yield from self._builder(tag, tag_bytes, attributes, entries)
        first = yield from self._plain(builder, entries)
        index = -1
        for found in elements(entries):
            if found is None:
                yield PAUSE
                continue
            index += 1
            if index < first:
                continue
            start, entry = found
            if index == self._limits.frame_events:
                yield builder.tail(
                    b"[" + bytes(entries[start:]).lstrip(), index, Reason.TOO_MANY_EVENTS, self._too_many()
                )
                return
            yield (yield from _part(builder, entry, index))

    def _plain(self, builder: EntryBuilder, body: memoryview) -> Generator[Part, None, int]:
        """Yields events from the first on while entries are ordinary. Returns how many."""
        entries = pairs(body)
        if entries is None or not is_utf8(body):
            return 0
        for index, (time, record) in enumerate(entries[: self._limits.frame_events]):
            value: Bytes = memoryview(record) if len(record) > SHORT else bytes(record)
            event = None
            if value[:1] == b"{" and not may_be_deep(value, builder.depth):
                seconds = integer(time)
                event = None if not seconds else builder.at_second(index, seconds, value)
            if event is None:
                return index
            yield event
        return min(len(entries), self._limits.frame_events)

    def _problem(self) -> tuple[Reason, str] | None:
        """Returns why the whole message is invalid, if it is."""
        message, option = self._message, self._option
        if message.elements is None:
            return Reason.BAD_JSON, "a text that is no Unicode, or a number that is no JSON"
        if len(message.elements) < (3 if message.option_index == 3 else 2):
            return Reason.BAD_MESSAGE, f"a message of {len(message.elements)} elements"
        if bytes(message.view(1)[:1]) == b'"':
            return Reason.BAD_ENCODING, "packed entries are bytes, which JSON does not have"
        if option.signal:
            return Reason.BAD_MESSAGE, f"fluent_signal {option.signal} in JSON"
        if len(message.view(0)) - 2 > self._limits.tag_bytes:
            return Reason.BAD_MESSAGE, "the tag is too long"
        if len(option.raw) > self._limits.option_bytes:
            return Reason.BAD_MESSAGE, "the option is too large"
        return None if option.problem is None else (Reason.BAD_MESSAGE, option.problem)

    @override
    def _subject(self) -> str:
        if not self._message.elements or len(self._message.view(0)) - 2 > self._limits.tag_bytes:
            return ""
        return _tag(self._message.element(0))[0]


def _tag(raw: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """Returns (subject, bytes for the id, attributes): as in `events`, for a JSON value."""
    text = string(raw)
    if text:
        return text, text.encode(), {}
    kept = text if text is not None else raw.decode("utf-8", "replace")
    return "", raw, {ForwardAttribute.TAG.value: kept}


def _part(builder: EntryBuilder, raw: Bytes, index: int) -> Generator[Pause, None, Part]:
    """Builds one entry's event or reject. A bug in Headrace sends only this entry to quarantine, with all its bytes."""
    try:
        return (yield from _checked(builder, raw, index))
    except BadTimeError as error:
        return builder.tail(raw, index, Reason.BAD_TIME, str(error))
    except UnicodeDecodeError as error:
        return builder.tail(raw, index, Reason.BAD_JSON, str(error))
    except ValueError as error:
        return builder.tail(raw, index, Reason.BAD_RECORD, str(error))
    except Exception as error:
        return builder.tail(raw, index, Reason.INTERNAL, f"{type(error).__name__}: {error}")


def _checked(builder: EntryBuilder, raw: Bytes, index: int) -> Generator[Pause, None, Part]:
    entry = pair(raw)
    if entry is None:
        raise ValueError("an entry is [time, record]")
    time, record = entry
    notes: list[bytes] = []
    if not is_utf8(raw):
        time.decode()
        found = yield from paused(mended(record, builder.depth, builder.event_bytes))
        if not isinstance(found, MendedJson):
            return builder.tail(raw, index, *found)
        record = found.value
        if not is_utf8(record):  # outside of its texts
            return builder.tail(raw, index, Reason.BAD_JSON, "not UTF-8 outside of its texts")
        notes.append(member_of(Attribute.INVALID_UTF8, found.note))
    if time.startswith(b"["):
        both = pair(time)
        if both is None or both[1][:1] != b"{":
            raise BadTimeError("an array that is not [time, metadata] is no time")
        time, metadata = both
        if metadata != b"{}":
            if (yield from _too_deep(metadata, builder.depth)):
                return builder.tail(raw, index, Reason.TOO_DEEP, f"metadata nested deeper than {builder.depth}")
            notes.append(member_of(ForwardAttribute.METADATA, metadata))
    if record[:1] != b"{":
        raise ValueError("a record is an object")
    if (yield from _too_deep(record, builder.depth)):
        return builder.tail(raw, index, Reason.TOO_DEEP, f"nested deeper than {builder.depth}")
    return builder.event(raw, index, _time(time), record, notes)


def _too_deep(text: Bytes, depth: int) -> Generator[Pause, None, bool]:
    return may_be_deep(text, depth) and (yield from paused(deepest(text))) > depth


def _time(text: bytes) -> int | Decimal | None:
    """Reads a JSON value as a time: null, or a number exactly as written."""
    if text == b"null":
        return None
    whole = integer(text) if b"." not in text else None
    if whole is not None:
        return whole
    try:
        if text[:1] not in b'"tf':
            return Decimal(text.decode())
    except (InvalidOperation, UnicodeDecodeError):
        pass
    raise BadTimeError(f"{text[:40].decode('utf-8', 'replace')} is no time")
