"""The messages and heartbeats of a device as records, and the markers of those that were lost. Pure."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.contract import Attribute, GapField, Reason
from headrace_common.record.event import Envelope, Event, Part, Reject, deterministic_id, rfc3339_ms, source
from headrace_common.record.json_object import Fault
from headrace_common.session.interface import Pause
from typing_extensions import override

from headrace_logjam.devices.gaps import DeviceStart, Gap
from headrace_logjam.events import PROTOCOL, LogjamAttribute, RecordMaker, event_time
from headrace_logjam.wire import (
    FRAMES,
    HEARTBEAT,
    NAME_BYTES,
    BodyLimits,
    Meta,
    decode_meta,
    is_app_env,
    miscounted,
)
from headrace_logjam.wire import joined as joined_frames

_SUBJECT: Final = 256
"""Longest part of a broken message's name that names its stream."""


class DeviceMessage(NamedTuple):
    """A message as it was received. `meta`: None when it is broken, and `problem` says how. `start` and `behind`: see
    `headrace_logjam.devices.gaps.Heard`; None if its device's numbers are not counted.
    """

    frames: tuple[bytes, ...]
    meta: Meta | None
    problem: str
    start: DeviceStart | None = None
    behind: bool = False

    @property
    def address(self) -> bytes:
        """Where its device publishes, if it is a heartbeat; else empty."""
        return self.frames[1] if self.frames[0] == HEARTBEAT and not self.problem else b""

    @property
    def key(self) -> bytes:
        """Messages of one key keep their order: their app-env."""
        return self.frames[0] if not self.problem else b""


def read_published(parts: Sequence[bytes]) -> DeviceMessage:
    """Reads a message from a device. Any topic will do."""
    frames = tuple(parts)
    if len(frames) != FRAMES:
        return DeviceMessage(frames, None, miscounted(frames))
    try:
        meta = decode_meta(frames[3])
    except ProtocolError as error:
        return DeviceMessage(frames, None, str(error))
    if frames[0] != HEARTBEAT and not is_app_env(frames[0]):
        return DeviceMessage(frames, meta, f"no app-env: {frames[0][:64]!r}")
    if len(frames[1]) > NAME_BYTES:
        return DeviceMessage(frames, meta, f"a topic of {len(frames[1])} bytes")
    return DeviceMessage(frames, meta, "")


class SubscriptionMaker(RecordMaker[DeviceMessage | Gap]):
    """Makes the records of one endpoint. Any number of consumers make the same of the same messages."""

    def __init__(self, endpoint: str, consumer: str, limits: BodyLimits) -> None:
        super().__init__(limits)
        self._source = source(PROTOCOL, endpoint)
        self._consumer = consumer
        self._by = b',"%b":%b' % (Attribute.CONSUMER.encode(), orjson.dumps(consumer))
        self._gaps = Envelope(PROTOCOL, self._source, "", type_suffix="gap")
        self._endpoint = endpoint

    @override
    def make(self, item: DeviceMessage | Gap, received_ms: int) -> Generator[Pause, None, Part]:
        if isinstance(item, Gap):
            return self._marker(item, received_ms)
        message, meta = item, item.meta
        if message.problem or meta is None:
            return self._reject(message, Reason.BAD_MESSAGE, message.problem)
        app_env, topic, body, _ = message.frames
        found = yield from self.read(meta, body)
        if isinstance(found, Fault):
            return self._reject(message, *found)
        _, fields, event = found
        time = event_time(fields, meta.created_ms)
        about = event.attributes(self._about(message, meta, received=time is None))
        envelope = self.envelope(self._endpoint, app_env, topic)
        return envelope.event(self._name(message), time or rfc3339_ms(received_ms), event.value, about)

    @override
    def spoiled(self, items: Sequence[DeviceMessage | Gap], detail: str) -> Reject:
        whole = [joined_frames(item.frames) for item in items if isinstance(item, DeviceMessage)]
        return self._reject(DeviceMessage(tuple(whole), None, detail), Reason.INTERNAL, detail)

    def _reject(self, message: DeviceMessage, reason: Reason, detail: str) -> Reject:
        """Returns the message for quarantine: each of its frames as u32 length and bytes."""
        subject = "/".join(frame[:_SUBJECT].decode(errors="replace") for frame in message.frames[:2])
        about = b"{}" if message.meta is None else self._about(message, message.meta)
        envelope = Envelope(PROTOCOL, self._source, subject)
        return envelope.reject(reason, detail, joined_frames(message.frames), self._name(message), about)

    def _name(self, message: DeviceMessage) -> bytes:
        """Returns the id of a message: over its frames. Devices without a number may say the same, so their endpoint is added."""
        numbered = message.meta is None or message.meta.device
        return deterministic_id(PROTOCOL, *message.frames, *(() if numbered else (self._source.encode(),)))

    def _marker(self, gap: Gap, received_ms: int) -> Event:
        """Returns the event that names the numbers that this consumer did not hear."""
        fields: dict[GapField, Any] = {
            GapField.CONSUMER: self._consumer,
            GapField.DEVICE: gap.device,
            GapField.FROM: gap.start,
            GapField.TO: gap.end,
        }
        raw = b"{" + b",".join(b'"%b":%b' % (name.encode(), _json(value)) for name, value in fields.items()) + b"}"
        name = deterministic_id(PROTOCOL, b"gap", self._source.encode(), raw, b"%d" % received_ms)
        return self._gaps.event(name, rfc3339_ms(received_ms), raw)

    def _about(self, message: DeviceMessage, meta: Meta, *, received: bool = False) -> bytes:
        start = b"" if message.start is None else _START % message.start
        if message.behind:
            start += _BEHIND
        time = _RECEIVED if received else b""
        return _ABOUT % (meta.device, meta.sequence, meta.created_ms, start, self._by, time)

    @override
    def new_envelope(self, sender: str, app_env: bytes, topic: bytes) -> Envelope:
        if app_env == HEARTBEAT:
            return Envelope(PROTOCOL, self._source, HEARTBEAT.decode(), type_suffix="heartbeat")
        return super().new_envelope(sender, app_env, topic)


def _json(value: object) -> bytes:
    """Returns it as JSON: orjson cannot write one past the last number."""
    return b"%d" % value if isinstance(value, int) else orjson.dumps(value)


_ABOUT: Final = b'{"%b":%%d,"%b":%%d,"%b":%%d%%b%%b%%b}' % (
    Attribute.DEVICE.encode(),
    Attribute.SEQUENCE.encode(),
    LogjamAttribute.CREATED.encode(),
)
_START: Final = b',"%b":%%d,"%b":%%d' % (Attribute.START.encode(), Attribute.RESTARTS.encode())
_BEHIND: Final = b',"%b":true' % Attribute.BEHIND.encode()
_RECEIVED: Final = b',"%b":"received"' % Attribute.TIME.encode()
