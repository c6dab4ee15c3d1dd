"""How an item of each protocol is read once more: its bytes become what the receiver's own code takes."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

import msgpack
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import Settings, load
from headrace_common.record.contract import JSON, OCTETS, Attribute, Reason
from headrace_common.record.event import Envelope, Part, rfc3339_ms, unique_id
from headrace_common.record.steps import finish
from headrace_courier import wire as courier
from headrace_courier.events import CourierAttribute
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierSettings
from headrace_forward.attributes import ForwardAttribute
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSettings
from headrace_logjam import wire as logjam
from headrace_logjam.devices.subscription import SubscriptionMaker, read_published
from headrace_logjam.events import Limits as LogjamLimits
from headrace_logjam.events import Maker
from headrace_logjam.settings import LogjamSettings
from headrace_lumberjack import wire as lumberjack
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSettings
from headrace_segment.settings import SegmentSettings

from headrace_cli.operating.check.parts import settings_class
from headrace_cli.wire.quarantined.items import Item
from headrace_cli.wire.quarantined.reading import (
    ImpossibleError,
    Replayed,
    frames_of,
    item_ids,
    numbered_ids,
    own_ids,
    parts_of,
    peer_of,
    read_again,
    received_ms,
)

_LENGTH: Final = struct.Struct(">I")
_CONSUMER: Final = "replay"


class Reader:
    """Reads items with the settings of the environment and of the YAML file `config`."""

    def __init__(self, config: Path | None = None) -> None:
        self._config = config
        self._settings: dict[str, Settings] = {}

    def read(self, item: Item) -> Replayed:
        """What the receiver makes of an item today. Raises `ConfigError` for wrong settings, and nothing else."""
        problem = item.problem()
        if problem:
            return Replayed(impossible=problem)
        if item.reason not in list(Reason):
            return Replayed(impossible="the record breaks the contract on its topic, no client sent it so")
        if item.protocol not in READERS:
            return Replayed(impossible=f"nobody reads {item.protocol}")
        settings = self._settings_of(item.protocol)
        try:
            if item.reason == Reason.REFUSED:
                return _refused(item, settings)
            return READERS[item.protocol](item, settings)
        except ProtocolError as error:
            return Replayed(impossible=f"the stream breaks: {error}" + (f" ({error.limit})" if error.limit else ""))
        except (ImpossibleError, ValueError, KeyError, TypeError, struct.error) as error:
            return Replayed(impossible=str(error) or type(error).__name__)

    def _settings_of(self, protocol: str) -> Settings:
        if protocol not in self._settings:
            self._settings[protocol] = load(settings_class(protocol), self._config)
        return self._settings[protocol]


def _lumberjack(item: Item, settings: Settings) -> Replayed:
    """One data frame: a document, or a D frame as it came; as `internal` all frames of a run."""
    assert isinstance(settings, LumberjackSettings)
    content = item.content()
    if content[:2] in (b"1D", b"2J"):
        version, frames = content[0], content
        count = _count_frames(content, settings)
    else:
        version, count = lumberjack.V2, 1
        frames = lumberjack.json_frame(_attributes(item).get(Attribute.SEQUENCE.value, 1), content)
    session = LumberjackSession(peer_of(item), settings.limits, settings.lumberjack)
    made = frames_of(session, lumberjack.window(count, version) + frames, received_ms(item.received))
    return read_again(item, parts_of(made), own_ids(item))


def _count_frames(content: bytes, settings: LumberjackSettings) -> int:
    limits, own = settings.limits, settings.lumberjack
    cutter = lumberjack.Cutter(
        lumberjack.WireLimits(limits.frame_bytes, own.window_events, own.pairs, own.key_bytes, own.value_bytes)
    )
    cutter.feed(content)
    count = 0
    while (run := cutter.cut()) is not None:
        if not isinstance(run, lumberjack.Run):
            raise ImpossibleError("it is no run of data frames")
        count += len(run)
    if cutter.left:
        raise ImpossibleError("it ends inside a frame")
    return count


def _courier(item: Item, settings: Settings) -> Replayed:
    """One event of a payload; what is beyond a payload's limit, or as `internal` all of it, with each event's length."""
    assert isinstance(settings, CourierSettings)
    content = item.content()
    nonce = bytes.fromhex(_attributes(item)[CourierAttribute.NONCE.value])
    whole = item.reason in (Reason.TOO_MANY_EVENTS, Reason.INTERNAL)
    events = list(_entries(content)) if whole else [content]
    session = CourierSession(peer_of(item), settings.limits, settings.courier)
    made = frames_of(session, courier.jdat(nonce, events), received_ms(item.received))
    # Ids count from a payload's end, so those of its rest come out as they were.
    return read_again(item, parts_of(made), own_ids(item) if whole else item_ids(item))


def _entries(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (size,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if at + size > len(content):
            raise ImpossibleError("it ends inside an event")
        yield content[at : at + size]
        at += size


def _forward(item: Item, settings: Settings) -> Replayed:
    """A whole message, or entries of one: those have its tag and chunk in their attributes."""
    assert isinstance(settings, ForwardSettings)
    content, now = item.content(), received_ms(item.received)
    about = _attributes(item)
    if Attribute.INDEX.value in about:
        session = ForwardSession(peer_of(item), settings.limits, settings.forward)
        message = _message_around(content, about, listed=item.reason == Reason.TOO_MANY_EVENTS)
        return read_again(item, parts_of(frames_of(session, message, now)), numbered_ids(item))
    # Whether the client's name is a part of the ids shows only by the item's own.
    for certified in (True, False):
        peer = replace(peer_of(item), certified=certified)
        frames = list(frames_of(ForwardSession(peer, settings.limits, settings.forward), content, now))
        if any(frame.spoiled("").id == item.name.encode() for frame in frames):
            return read_again(item, parts_of(frames), own_ids(item))
    frames = list(frames_of(ForwardSession(peer_of(item), settings.limits, settings.forward), content, now))
    return read_again(item, parts_of(frames), own_ids(item))


def _message_around(content: bytes, about: Mapping[str, Any], *, listed: bool) -> bytes:
    """A message with these entries. `listed`: of JSON they are an array already."""
    tag, chunk = about.get(ForwardAttribute.TAG.value, ""), about.get(ForwardAttribute.CHUNK.value)
    option = {} if chunk is None else {"chunk": chunk}
    if content[:1] == b"[":
        entries = content if listed else b"[" + content + b"]"
        return b"[%b,%b,%b]" % (orjson.dumps(tag), entries, orjson.dumps(option))
    return cast("bytes", msgpack.packb([_packed(tag), content, {key: _packed(value) for key, value in option.items()}]))


def _packed(value: Any) -> Any:
    return b64decode(value["$bin"]) if isinstance(value, dict) else value


def _logjam(item: Item, settings: Settings) -> Replayed:
    """A producer's message, or one that a device has published: that one has its device in its attributes."""
    assert isinstance(settings, LogjamSettings)
    limits = settings.limits
    made = LogjamLimits(logjam.BodyLimits(limits.event_bytes, limits.inflated_bytes, limits.ratio), limits.depth)
    frames, now = logjam.split(item.content()), received_ms(item.received)
    origin = unquote(item.source.rpartition("/")[2])
    part: Part
    if Attribute.DEVICE.value in _attributes(item):
        part = finish(SubscriptionMaker(origin, _CONSUMER, made).make(read_published(frames), now))
        return read_again(item, [part], own_ids(item))
    maker = Maker(made)
    messages = [logjam.split(frame) for frame in frames] if item.reason == Reason.INTERNAL else [frames]
    parts = [finish(maker.make(logjam.read_unanswered(message), origin, now)).part for message in messages]
    return read_again(item, parts, own_ids(item))


def _segment(item: Item, settings: Settings) -> Replayed:
    """One event that was too large."""
    assert isinstance(settings, SegmentSettings)
    if item.reason != Reason.OVERSIZED:
        raise ImpossibleError("the levels of a block's events are not known any more")
    return _as_it_is(item, settings, OCTETS)


def _refused(item: Item, settings: Settings) -> Replayed:
    """An event that was made, and that Kafka refused: its value and attributes are there, its time is not."""
    if item.protocol in ("lumberjack", "courier"):  # the value is what the client sent
        return READERS[item.protocol](item, settings)
    opaque = item.protocol == "segment" or ForwardAttribute.SIGNAL.value in _attributes(item)
    return _as_it_is(item, settings, OCTETS if opaque else JSON)


def _as_it_is(item: Item, settings: Settings, content_type: bytes) -> Replayed:
    protocol, content = item.protocol, item.content()
    envelope = Envelope(protocol, item.source, item.stream, content_type=content_type)
    about = orjson.dumps({**_attributes(item), Attribute.TIME.value: "received"})
    most = settings.limits.event_bytes  # type: ignore[attr-defined]
    if len(content) > most:
        part: Part = envelope.reject(Reason.OVERSIZED, f"{len(content)} bytes", content, unique_id())
    else:
        part = envelope.event(unique_id(), rfc3339_ms(received_ms(item.received)), content, about)
    return read_again(item, [part], item_ids(item))


def _attributes(item: Item) -> Mapping[str, Any]:
    return item.attributes if isinstance(item.attributes, dict) else {}


READERS: Final[Mapping[str, Callable[[Item, Any], Replayed]]] = {
    "courier": _courier,
    "forward": _forward,
    "logjam": _logjam,
    "lumberjack": _lumberjack,
    "segment": _segment,
}
"""By protocol."""
