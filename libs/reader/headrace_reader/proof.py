"""The proof that each record of the topics is in the tables exactly once.

It proves that rows and bookkeeping agree, and that the bookkeeping is whole. It cannot see records that no table ever had: only a
comparison with Kafka shows whether the ends agree.
"""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

from typing import Final

import duckdb

from headrace_reader.address import LakeAddress
from headrace_reader.tables import RETAINED, TABLES, TRANSACTIONS, Row, connect, rows
from headrace_reader.text import compact

_MAX_OFFSET: Final = "9223372036854775807"
COVERED: Final = f"""
    select topic_id, "partition", "from", "to", epoch, batch, false as is_gap from batches
    union all
    select topic_id, "partition", "from", coalesce("to", {_MAX_OFFSET}), epoch, null, true from gaps
    where "from" is not null and "partition" is not null"""
"""All offset ranges that the lake accounts for: landed in a batch, or lost and accepted.

A gap has no end when its topic no longer exists.
"""
_RANGES: Final = f"""
    select *, row_number() over (partition by topic_id, "partition" order by "from", "to") as place,
        lag("to") over (partition by topic_id, "partition" order by "from", "to") as previous
    from ({COVERED})"""
ENDS: Final = f"""select topic_id, "partition", max("to") as landed_to from ({COVERED}) group by all"""
"""One past the last offset of each partition that the lake accounts for."""

_LAST: Final = "select max(epoch * 4294967296 + batch) from batches"
"""The transaction of the last batch in `batches`; see `headrace_lake.tables.fence`."""
_OF_A_BATCH: Final = "(version & 4294967295) < 2147483648"
"""Whether a transaction is that of a batch, not of a claim or of a replay."""
_UNDER_WAY: Final = f"""(
    exists (from {TRANSACTIONS} where "table" in ('events', 'quarantine', 'duplicates') and {_OF_A_BATCH}
        and version > coalesce(({_LAST}), -1))
    or exists (from {TRANSACTIONS} e, {TRANSACTIONS} g where e."table" = 'events' and g."table" = 'gaps'
        and ((g.version + 1) >> 32) < ((e.version + 1) >> 32))
    or exists (from {TRANSACTIONS} where "table" = 'batches' and (version & 4294967295) = 2147483648))"""
"""Whether a batch has rows that `batches` does not have yet, a job is claiming the tables at this moment, or it is about to after
a replay went back."""


_TABLES: Final = ("events", "quarantine", "duplicates")
"""The tables with a row for each record that is covered and was not erased."""


def _erased_from(table: str) -> str:
    return f"""select distinct topic_id, "partition", unnest(offsets) as "offset" from erasures where "table" = '{table}'"""


def _present(table: str) -> str:
    """Returns a query for the places of the rows of `table`, and of those that were erased: they count as if they were there."""
    view = f'main."{table}"'  # the queries around this one give names, too
    there = f'select topic_id, "partition", "offset" from {view}'
    gone = f'select * from ({_erased_from(table)}) anti join {view} using (topic_id, "partition", "offset")'
    return f"{there} union all {gone}"


_PRESENT: Final = " union all ".join(map(_present, _TABLES))

_ROWS_DISAGREE: Final = f"""
    with covered as (from ({COVERED}) where "from" < "to"),
    landed as (
        select r.topic_id, r."partition", r."offset" from ({_PRESENT}) r join ({ENDS}) e using (topic_id, "partition")
        where r."offset" < e.landed_to),
    placed as (
        select l.topic_id, l."partition", c."from", count(*) as found, count(distinct l."offset") as different
        from landed l asof left join covered c
            on l.topic_id = c.topic_id and l."partition" = c."partition" and l."offset" >= c."from"
        where c.is_gap is not true group by all)
    select topic_id, "partition", "from", records as said, coalesce(found, 0) as found, coalesce(different, 0) as different
    from (from batches where "from" < "to") b full join placed p using (topic_id, "partition", "from")
    where coalesce(found, 0) <> coalesce(different, 0) or records is null or records < coalesce(found, 0)
        or records > "to" - "from" or records > coalesce(found, 0)
        and not exists (from {RETAINED} k where b.landed_at < k."from")"""
"""The ranges that have other records in the tables than `batches` says, or one twice.

Rows of an unfinished batch lie beyond all ranges, so they do not count. Retention may have dropped rows of ranges that landed
before the first kept day: of those, no more rows may be there than were landed.
"""


def _beyond(table: str) -> str:
    return f"""select '{table}' as "table", r.topic_id, r."partition", r."offset", e.landed_to
        from {table} r left join ({ENDS}) e using (topic_id, "partition")
        where e.landed_to is null or r."offset" >= e.landed_to"""


ROWS_BEYOND: Final = " union all ".join(map(_beyond, _TABLES))

_ROWS_IN_GAPS: Final = f"""
    with placed as (
        select g.topic_id, g."partition", g."from", g."rows" as said, count(k."offset") as found,
            count(distinct k."offset") as different
        from gaps g left join ({_PRESENT}) k on g.topic_id = k.topic_id and g."partition" = k."partition"
            and k."offset" >= g."from" and k."offset" < coalesce(g."to", {_MAX_OFFSET})
        where g."from" is not null and g."partition" is not null group by all)
    select * from placed
    where found <> different or found > said or said is null or (found < said and not exists (from {RETAINED}))"""

_GAPS_OF_NO_CLAIM: Final = f"""
    select g.topic_id, g."partition", g."from", g."to", g.epoch from gaps g
    where g."from" is not null and (
        g.epoch > (select max((version + 1) >> 32) from {TRANSACTIONS} where "table" = 'gaps' and version >= 0)
        or exists (from batches b where b.topic_id = g.topic_id and b."partition" = g."partition" and b."from" < g."from"
            and b.epoch >= g.epoch and b.landed_at > g.landed_at))"""
"""A job records gaps in the commit that claims its epoch, before it lands its first batch."""

_NOT_ERASED: Final = " union all ".join(
    [
        *(
            f"""select '{table}' as "table", topic_id, "partition", "offset" from {table}
            semi join ({_erased_from(table)}) using (topic_id, "partition", "offset")"""
            for table in ("events", "quarantine")
        ),
        """select 'events' as "table", topic_id, "partition", "offset" from events
        where exists (from erasures) and event_id in (select unnest(ids) from erasures)""",
    ]
)

_ERASURES_LISTED: Final = f"""
    select * from (
        select count(distinct erasure) as listed,
            (select coalesce(max(version), -1) from {TRANSACTIONS} where "table" = 'erasures') as by_command from erasures)
    where listed <> greatest(by_command, 0)"""
"""The command counts the erasures in the table's log."""

EXACTLY_ONCE: Final = {
    "the ranges of each partition have no hole that is not in gaps, and no overlap": (
        f'select topic_id, "partition", epoch, batch, is_gap, "from", "to", previous from ({_RANGES}) '
        'where "from" > "to" or ("from" = "to") <> coalesce(batch = -1, false) or (place > 1 and "from" <> previous)'
    ),
    "no row of batches is missing, and none is there twice": (
        "select * from (select count(*) as rows_there, max(number) as last_number, count(distinct number) as different "
        "from batches) where last_number <> rows_there or different <> rows_there"
    ),
    "the last batch that was committed is in batches": (
        f"select version >> 32 as epoch, version & 4294967295 as batch from {TRANSACTIONS} t where \"table\" = 'batches' "
        f"and version >= 0 and {_OF_A_BATCH} and not exists "
        "(from batches b where b.epoch = t.version >> 32 and b.batch = (t.version & 4294967295))"
    ),
    "each record of a range is in one of events, quarantine, duplicates and erasures": _ROWS_DISAGREE,
    "the gaps hold the rows that they say, each once": _ROWS_IN_GAPS,
    "each gap was recorded by the job that claimed its epoch": _GAPS_OF_NO_CLAIM,
    "no table says that days were dropped which are not over": (
        f'select "table", "from"::date as kept_from from {RETAINED} where "from" > now()'
    ),
    "nothing is there that was erased": _NOT_ERASED,
    "each erasure was listed by the command": _ERASURES_LISTED,
    "rows beyond all ranges are of a batch under way, or of one that a job left": (
        f'select b.* from ({ROWS_BEYOND}) b where not {_UNDER_WAY} and b."offset" >= coalesce((select max(strays) '
        'from batches s where s.topic_id = b.topic_id and s."partition" = b."partition"), 0)'
    ),
}
"""The proof: each of these queries must return no row."""

OF_ERASING: Final = ("nothing is there that was erased",)
"""The checks that fail while an erasure is under way, or was killed: nothing is lost, but listed rows are there."""


TABLES_THERE: Final = (
    f"select 'no table ' || name as missing from (select unnest({list(TABLES)}) as name) "
    "where name not in (select view_name from duckdb_views() where not internal)"
)
"""The other checks need it."""


_TOTALS: Final = f"""
    select count(*) filter ("from" < "to") as ranges, count(distinct (topic_id, "partition")) as partitions,
        coalesce(sum(records), 0)::bigint as records, (select count(*) from events) as events,
        (select count(*) from duplicates) as duplicates, (select count(*) from quarantine) as quarantined,
        (select coalesce(sum("to" - "from" - "rows"), 0)::bigint from gaps) as lost_offsets,
        (select count(*) from gaps where reason = 'recreated') as partitions_lost,
        (select count(*) from ({ROWS_BEYOND})) as rows_of_a_batch_under_way from batches"""


def exactly_once(lake: LakeAddress) -> list[Row]:
    """Proves that each record of the topics is in the tables once; returns a row for each check and one with the totals."""
    with connect(lake) as connection:
        there = checked(connection, "all tables are there", TABLES_THERE)
        if not there["ok"]:
            return [there, {"check": "all of it", "ok": False, "detail": ""}]
        proof = [there, *(checked(connection, name, sql) for name, sql in EXACTLY_ONCE.items())]
        totals = rows(connection, _TOTALS)[0]
    landed = compact(totals) if totals["ranges"] else "nothing has landed yet"
    proof.append({"check": "all of it", "ok": all(row["ok"] for row in proof), "detail": landed})
    return proof


def checked(connection: duckdb.DuckDBPyConnection, check: str, sql: str) -> Row:
    """Returns a row that says whether `check` holds, and what contradicts it first: a row of `sql`."""
    return judged(check, rows(connection, f"select * from ({sql}) limit 1000"))


def judged(check: str, wrong: list[Row]) -> Row:
    """Returns a row that says whether `check` holds: nothing is `wrong`."""
    detail = f"{len(wrong)} contradict it, the first: {compact(wrong[0])}" if wrong else ""
    return {"check": check, "ok": not wrong, "detail": detail}
