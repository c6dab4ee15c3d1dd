"""A message as a frame: builds its events piece by piece, as the publisher asks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.contract import Reason
from headrace_common.record.event import Part, Reject, deterministic_id, unique_id
from headrace_common.record.json_text import Bytes
from headrace_common.session.inflate import GZIP_MAGIC, ZSTD_MAGIC, inflate_gzip, inflate_zstd
from headrace_common.session.interface import SMALL, Frame, Run, Ticket
from typing_extensions import override

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.builder import EntryBuilder
from headrace_forward.entries.ids import NAMES_NOTHING, PROTOCOL, message_ids, names_content
from headrace_forward.entries.option import Option
from headrace_forward.entries.values import bin_or_text
from headrace_forward.events.origin import Origin
from headrace_forward.kinds import content
from headrace_forward.wire import ForwardMessage

OVERHEAD: Final = 512
"""Bytes of memory that a message takes beyond its own."""

NO_TAG: Final = "the tag is no text, or too long"

Inflate = Callable[[bytes | memoryview, int], Iterator[bytes]]


class MadeFrame(Frame):
    """A small message whose events the native core has all made. It holds nothing else."""

    __slots__ = ("made", "received_ms", "size", "ticket")

    made: list[Part]
    small = True

    def __init__(self, made: list[Part], size: int, ticket: Ticket, received_ms: int) -> None:
        """`size`: bytes of the events."""
        self.made = made
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = size + OVERHEAD

    @override
    def runs(self) -> Iterator[list[Part]]:
        return iter((self.made,))

    @override
    def spoiled(self, detail: str) -> Reject:
        raise AssertionError(f"{detail}, and yet its events are there")


class MessageFrame(Frame):
    """One message, in either codec."""

    __slots__ = ("_message", "_option", "_origin", "acknowledged", "received_ms", "size", "small", "ticket")

    def __init__(self, message: Any, option: Option, ticket: Ticket, received_ms: int, origin: Origin) -> None:
        """`message`: with `raw`, its bytes as received."""
        self._message = message
        self._option = option
        self._origin = origin
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = option.chunk is not None
        self.size = len(message.raw) + OVERHEAD
        self.small = len(message.raw) <= SMALL and not self._grows()

    def _grows(self) -> bool:
        """Returns whether its payload is compressed."""
        return False

    @abstractmethod
    def _tag(self) -> str | None:
        """Returns the tag; None if it is too long or no text."""

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole message, with reason `internal`."""
        return self._whole(Reason.INTERNAL, detail)

    def _whole(self, reason: Reason, detail: str) -> Reject:
        """Returns the message as received, as one reject."""
        chunk, raw = self._option.chunk, self._message.raw
        if chunk is None or chunk in NAMES_NOTHING or names_content(chunk, self.received_ms // 1000):
            reject_id = unique_id()
        else:
            reject_id = deterministic_id(PROTOCOL, b"", chunk, *filter(None, (self._origin.name,)), raw)
        return self._origin.envelope(self._tag() or "").reject(reason, detail, raw, reject_id)

    def _builder(self, tag: str, tag_bytes: bytes, body: Bytes) -> Generator[int, None, EntryBuilder]:
        """Returns the builder of the entries; hashes a large body in slices."""
        ids = yield from message_ids(tag_bytes, self._option.chunk, self._origin.name, body, self.received_ms // 1000)
        chunk = self._option.chunk
        attributes = {} if chunk is None else {ForwardAttribute.CHUNK.value: bin_or_text(chunk)}
        encoded = bytes(memoryview(orjson.dumps(attributes))) if attributes else b""  # what orjson returns takes 4 KB

        return EntryBuilder(
            self._origin.envelope(tag),
            ids,
            self.received_ms,
            encoded,
            {ForwardAttribute.TAG.value: tag, **attributes},
            self._origin.limits.event_bytes,
            self._origin.limits.depth,
        )


class ForwardFrame(MessageFrame):
    """One msgpack message."""

    __slots__ = ()

    _message: ForwardMessage

    @override
    def _grows(self) -> bool:
        payload = self._message.payload()
        return payload is not None and _inflater(payload) is not None

    @override
    def runs(self) -> Iterator[Run]:
        message = self._message
        payload, tag = message.payload(), self._tag()
        problem = self._problem()
        if problem is not None or tag is None:
            yield self._whole(Reason.BAD_MESSAGE, problem or NO_TAG)
            return
        try:
            body = self._entries() if payload is None else (yield from self._inflated(payload))
        except ProtocolError as error:
            reason = Reason.COMPRESSION if error.limit is None else Reason.INFLATED_LIMIT
            yield self._whole(reason, str(error))
            return
        builder = yield from self._builder(tag, tag.encode(), body)
        yield from builder.build(body, self._origin.limits.frame_events, framed=payload is None)

    def _entries(self) -> Bytes:
        """Returns the entries of a message without a payload, one after the other."""
        message = self._message
        if message.listed:
            return message.entries()
        time = message.element(1)
        if self._option.metadata is not None:  # in the form that entries of the other modes have
            time = b"\x92" + time + self._option.metadata
        return b"".join((b"\x92", time, message.elements[2]))

    def _inflated(self, body: memoryview) -> Generator[int, None, Bytes]:
        """Returns the payload, inflated if its first bytes say that it is compressed; the option does not count.

        Raises `ProtocolError` if it does not inflate.
        """
        if (inflate := _inflater(body)) is None:
            return body
        inflated, limits = bytearray(), self._origin.limits
        for piece in inflate(body, limits.inflated_bytes):
            yield len(piece)
            inflated += piece
        return inflated

    def _problem(self) -> str | None:
        """Returns why the whole message is invalid, if it is, but for its tag."""
        message = self._message
        if len(message.elements) < message.option_index:
            return f"a message of {len(message.elements)} elements"
        if len(message.element(message.option_index)) > self._origin.option_bytes:
            return "the option is too large"
        return self._option.problem

    @override
    def _tag(self) -> str | None:
        name = self._message.element(0)
        most = self._origin.tag_bytes
        return None if not name or (len(name) > most and len(content(name)) > most) else self._origin.tag(name)


def _inflater(payload: memoryview) -> Inflate | None:
    """Returns what inflates `payload`, by its first bytes; None: it is not compressed. Entries begin with an array: no clash."""
    first = bytes(payload[:4])
    return inflate_gzip if first.startswith(GZIP_MAGIC) else inflate_zstd if first == ZSTD_MAGIC else None
