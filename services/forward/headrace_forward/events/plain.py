"""A message that the native core has taken apart, or has made all events of."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from headrace_common.record import native
from headrace_common.record.event import Part, Reject
from headrace_common.session.interface import AT_ONCE, Frame, Pause, Ticket
from typing_extensions import override

from headrace_forward.entries import option
from headrace_forward.entries.ids import small_message_ids
from headrace_forward.events.message import CHUNK, OVERHEAD, ForwardFrame, MessageLimits
from headrace_forward.events.origin import Origin
from headrace_forward.kinds import cut
from headrace_forward.wire import ForwardMessage


class MadeFrame(Frame):
    """A small message whose events the native core has all made. It holds nothing else."""

    __slots__ = ("_events", "received_ms", "size", "ticket")

    small = made = True

    def __init__(self, events: list[Part], size: int, ticket: Ticket, received_ms: int) -> None:
        """`size`: bytes of the events."""
        self._events = events
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = size + OVERHEAD

    @override
    def at_once(self) -> list[Part]:
        return self._events

    @override
    def parts(self) -> Iterator[Part]:
        return iter(self._events)

    @override
    def spoiled(self, detail: str) -> Reject:
        raise AssertionError(f"{detail}, and yet its events are there")


class PlainFrame(Frame):
    """A small message that the native core has taken apart. If it is not plain, `ForwardFrame` builds it."""

    __slots__ = ("_body", "_chunk", "_limits", "_offset", "_origin", "_raw", "_tag", "received_ms", "size", "ticket")

    small = True

    def __init__(
        self,
        raw: bytes,
        offset: int,
        found: tuple[bytes, bytes, bytes | None, bytes],
        ticket: Ticket,
        received_ms: int,
        origin: Origin,
        limits: MessageLimits,
    ) -> None:
        """`offset`: of `raw` in the connection; `found`: what `Core.message` returns."""
        self._raw = raw
        self._offset = offset
        self._tag, self._body, self._chunk, _ = found
        self._origin = origin
        self._limits = limits
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = len(raw) + OVERHEAD

    @property
    def acknowledged(self) -> bool:  # type: ignore[override]
        """See `Frame.acknowledged`."""
        return self._chunk is not None

    @override
    def at_once(self) -> list[Part] | None:
        origin, limits, chunk, body = self._origin, self._limits, self._chunk, self._body
        known = origin.plain_tag(self._tag, limits.tag_bytes)
        if known is not None:
            tag, content = known
            ids, content_ids = small_message_ids(content, chunk, origin.name, body, self.received_ms // 1000)
            attributes = b"" if chunk is None else orjson.dumps({CHUNK: chunk.decode()})
            events, read = native.core.entries(
                origin.envelope(tag).pieces, attributes, ids.prefix, content_ids.prefix,
                (limits.event_bytes, limits.depth), body, 0, min(AT_ONCE, limits.frame_events),
            )  # fmt: skip
            if read == len(body):
                return events
        return self._carefully().at_once()

    @override
    def parts(self) -> Iterator[Part | Pause]:
        return self._carefully().parts()

    @override
    def runs(self) -> Iterator[Part | Pause | list[Part]]:
        return self._carefully().runs()

    @override
    def spoiled(self, detail: str) -> Reject:
        return self._carefully().spoiled(detail)

    def _carefully(self) -> ForwardFrame:
        """Returns the same message as Python takes it apart."""
        found = cut(self._raw, self._limits.frame_events)
        assert found is not None, "a plain message that Python cannot take apart"
        message = ForwardMessage(self._raw, self._offset, 1, *found)
        return ForwardFrame(message, option.read(message), self.ticket, self.received_ms, self._origin, self._limits)
