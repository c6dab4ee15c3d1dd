"""The numbers of Logjam's devices that no consumer has stored: a query over those that have landed.

A number that is missing between two stored ones of one start of a device was lost, and below the first one of each start but the
oldest. Which records are of one start:

* A consumer stamps each with when it first heard that start, and how many it had heard before (`Attribute.START`, `RESTARTS`).
* The first start that a process hears may be one that others, or an earlier process, have heard: unless these had stored one of
  its numbers before, as a device's numbers only rise.
* A later one is another, unless another consumer began to hear one less than `_SLACK` before.

What comes behind a higher number (`Attribute.BEHIND`) is late, or of another device with the same number: no gap is counted from
it to the next.
"""

# ruff: noqa: S608  (the SQL is assembled from constants)
from __future__ import annotations

from typing import Final

from headrace_common.record.contract import Attribute

_SLACK: Final = 5000  # ms: how much later one consumer may hear what another hears, by its own clock


def _number(name: str) -> str:
    return f"try_cast(try_cast(attributes as json)->>'$.{name}' as bigint)"


_SAME: Final = "r.source = s.source and r.device = s.device"
_UNTIL: Final = f"s.start - if(r.consumer = s.consumer, 0, {_SLACK})"

LOSSES: Final = f"""
    with recursive numbers as materialized (
        select source, device, consumer, start, restarts, number, bool_and(behind) as behind, min(received) as received
        from (
            select source, {_number(Attribute.DEVICE)} as device, {_number(Attribute.SEQUENCE)} as number,
                try_cast(attributes as json)->>'$.{Attribute.CONSUMER}' as consumer, {_number(Attribute.START)} as start,
                {_number(Attribute.RESTARTS)} as restarts, epoch_ms(received_time) as received,
                coalesce((try_cast(attributes as json)->>'$.{Attribute.BEHIND}') = 'true', false) as behind
            from (select source, attributes, received_time, protocol from events
                union all select source, attributes, received_time, protocol from quarantine) where protocol = 'logjam')
        where start is not null and number is not null group by all),
    heard as materialized (
        select *, row_number() over (partition by source, device order by start, consumer) as n from (
            select source, device, consumer, start, restarts, min(number) as low, max(number) as high,
                max(received) as until
            from numbers group by all)),
    apart as (
        select source, device, n, max(other) as other from (
            select s.source, s.device, s.n, r.n as other from heard s join heard r on {_SAME} and r.n < s.n
            where if(s.restarts > 0, r.consumer = s.consumer or r.start <= s.start - {_SLACK},
                r.high >= s.low and r.until < {_UNTIL})
            union all
            select s.source, s.device, s.n, r.n from heard s join heard r on {_SAME} and r.n < s.n
            join numbers x on x.source = r.source and x.device = r.device and x.consumer = r.consumer and x.start = r.start
            where s.restarts = 0 and r.high >= s.low and r.until >= {_UNTIL} and r.start < {_UNTIL}
                and x.number >= s.low and x.received < {_UNTIL}) group by all),
    starts as (
        select source, device, n, n as first from heard where n = 1
        union all
        select s.source, s.device, s.n, if(coalesce(a.other, 0) >= r.first, s.n, r.first)
        from starts r join heard s on {_SAME} and s.n = r.n + 1
        left join apart a on a.source = s.source and a.device = s.device and a.n = s.n),
    known as (
        select source, device, first, number, bool_and(behind) as behind, min(received) as received
        from numbers join heard using (source, device, consumer, start, restarts) join starts using (source, device, n)
        group by all),
    neighbours as (
        select *, lag(number) over own as last, lag(behind) over own as after_behind from known
        window own as (partition by source, device, first order by number))
    select source, device, coalesce(last + 1, 1) as from_sequence, number as to_sequence,
        number - coalesce(last + 1, 1) as numbers, make_timestamptz(received * 1000) as received_time
    from neighbours
    where if(last is null, first > 1 and number > 1, number > last + 1 and not after_behind)"""
"""Its rows are ranges of lost numbers: from the first to before `to_sequence`, which was received at `received_time`."""
