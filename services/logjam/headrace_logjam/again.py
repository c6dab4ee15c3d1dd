"""How an item of quarantine becomes a message again. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from headrace_common.record.contract import JSON, Attribute, Reason
from headrace_common.record.event import Part
from headrace_common.record.steps import finish
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, as_it_is, own_ids, read_again

from headrace_logjam import wire as logjam
from headrace_logjam.devices.subscription import SubscriptionMaker, read_published
from headrace_logjam.events import ProducerMaker, ProducerMessage
from headrace_logjam.session import limits_of
from headrace_logjam.settings import LogjamSettings

_CONSUMER: Final = "replay"


def read(item: QuarantinedItem, settings: LogjamSettings) -> ReplayOutcome:
    """Reads a producer's message, or one that a device has published, whose attributes have the device."""
    limits = settings.limits
    if item.reason == Reason.REFUSED:
        return as_it_is(item, limits.event_bytes, JSON)
    frames, now = logjam.split(item.content), item.received_ms
    origin = unquote(item.source.rpartition("/")[2])
    part: Part
    if Attribute.DEVICE.value in item.attributes:
        part = finish(SubscriptionMaker(origin, _CONSUMER, limits_of(limits)).make(read_published(frames), now))
        return read_again([part], own_ids(item))
    make = ProducerMaker(limits_of(limits)).make
    messages = [logjam.split(frame) for frame in frames] if item.reason == Reason.INTERNAL else [frames]
    parts = [finish(make(ProducerMessage(logjam.read_unanswered(each), origin), now)) for each in messages]
    return read_again(parts, own_ids(item))
