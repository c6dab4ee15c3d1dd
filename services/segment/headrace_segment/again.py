"""How an item of quarantine becomes an event again: one that was too large. Pure."""

from __future__ import annotations

import orjson
from headrace_common.record.contract import OCTETS, Attribute, Reason
from headrace_common.record.event import Envelope, Part, rfc3339_ms, unique_id
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, read_again

from headrace_segment.settings import SegmentSettings


def read(item: QuarantinedItem, settings: SegmentSettings) -> ReplayOutcome:
    """Reads one event; its time is that of its receipt. Raises ValueError for anything else."""
    if item.reason != Reason.OVERSIZED:
        raise ValueError("the levels of a block's events are not known any more")
    content, most = item.content, settings.limits.event_bytes
    envelope = Envelope(item.protocol, item.source, item.stream, content_type=OCTETS)
    about = orjson.dumps({**item.attributes, Attribute.TIME.value: "received"})
    if len(content) > most:
        part: Part = envelope.reject(Reason.OVERSIZED, f"{len(content)} bytes", content, unique_id())
    else:
        part = envelope.event(unique_id(), rfc3339_ms(item.received_ms), content, about)
    return read_again(item, [part], numbered=True)
