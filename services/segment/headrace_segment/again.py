"""How an item of quarantine becomes an event again: one that was too large, or that Kafka refused. Pure."""

from __future__ import annotations

from headrace_common.record.contract import OCTETS, Reason
from headrace_common.session.again import ImpossibleError, QuarantinedItem, ReplayOutcome, as_it_is

from headrace_segment.settings import SegmentSettings


def read(item: QuarantinedItem, settings: SegmentSettings) -> ReplayOutcome:
    """Reads one event. Raises `ImpossibleError` for anything else."""
    if item.reason not in (Reason.OVERSIZED, Reason.REFUSED):
        raise ImpossibleError("the levels of a block's events are not known any more")
    return as_it_is(item, settings.limits.event_bytes, OCTETS)
