"""Logjam's gaps, and whether other records fill them: a query over the numbers that have landed."""

# ruff: noqa: S608  (the SQL is assembled from constants)
from __future__ import annotations

from typing import Final

from headrace_common.record.contract import Attribute, GapField, GapReason

_SLACK: Final = 5000  # ms: how much earlier or later another consumer may have received what this one did not


def _number(json: str, name: str) -> str:
    return f"try_cast(try_cast({json} as json)->>'$.{name}' as bigint)"


_AFTER, _BEFORE = (_number("g.detail", name) for name in (GapField.AFTER, GapField.BEFORE))
GAPS: Final = f"""
    with logjam as (
        select source, {_number("attributes", Attribute.DEVICE)} as device, epoch_ms(received_time) as received,
            {_number("attributes", Attribute.SEQUENCE)} as number
        from (select source, attributes, received_time, protocol from events
            union all select source, attributes, received_time, protocol from quarantine) where protocol = 'logjam'),
    filled as (
        select g.topic_id, g."partition", g."offset", count(distinct l.number) as numbers
        from gaps g join logjam l on l.source = g.source and l.device = g.device
            and l.number >= g.from_sequence and l.number < g.to_sequence
            and coalesce(l.received >= {_AFTER} - {_SLACK}, true) and coalesce(l.received <= {_BEFORE} + {_SLACK}, true)
        where g.reason = '{GapReason.LOGJAM}' group by all)
    select g.*, coalesce(f.numbers = g.to_sequence - g.from_sequence, false) as covered
    from gaps g left join filled f using (topic_id, "partition", "offset")"""
"""The rows of `gaps`, with `covered`: records (events, heartbeats, quarantine) have all numbers of a Logjam gap, received between
the two messages around it, as far as the marker names their times: those of our receivers, as producers' clocks say nothing.
"""
