"""How an item of quarantine becomes a message again. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from headrace_common.record.contract import Attribute, Reason
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, read_again

from headrace_logjam.devices.consumer import SubscriptionMaker
from headrace_logjam.events import RecordMaker
from headrace_logjam.gathering import MessagesFrame
from headrace_logjam.settings import LogjamSettings
from headrace_logjam.wire import read_published, read_unanswered, split

_CONSUMER: Final = "replay"


def read(item: QuarantinedItem, settings: LogjamSettings) -> ReplayOutcome:
    """Reads a producer's message, or one that a device has published, whose attributes have the device."""
    frames, origin = split(item.content), unquote(item.source.rpartition("/")[2])
    maker, read_message = RecordMaker(settings.limits), read_unanswered
    if Attribute.DEVICE.value in item.attributes:
        maker, read_message = SubscriptionMaker(origin, _CONSUMER, settings.limits), read_published
    messages = [split(frame) for frame in frames] if item.reason == Reason.INTERNAL else [frames]
    known = [read_message(each, origin) for each in messages]
    frame = MessagesFrame(0, item.received_ms, maker, b"", acknowledged=False, kept=False, messages=known)
    return read_again(item, frame.parts())
