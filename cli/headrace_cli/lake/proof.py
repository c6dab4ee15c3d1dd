"""The proof that each record of the topics is in the tables exactly once.

It proves that rows and bookkeeping agree, and that the bookkeeping is whole. It cannot see what the tables never knew: only a
comparison with Kafka shows whether the ends agree.
"""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

from typing import Final

from headrace_cli.lake.address import LakeAddress
from headrace_cli.lake.checks import EXACTLY_ONCE, ROWS_BEYOND, TABLES_THERE, checked, of_route
from headrace_cli.lake.tables import ROUTES, Row, connect, rows
from headrace_cli.lake.text import compact

_NAMED: Final = 20  # most erasures that the proof names

_ERASURES: Final = """
    select erasure, min(erased_at)::date as day, any_value(requested_by) as "by", any_value(reason) as reason,
        coalesce(sum("rows") filter ("table" = 'events'), 0)::bigint as events,
        coalesce(sum("rows") filter ("table" = 'quarantine'), 0)::bigint as quarantined,
        nullif(coalesce(sum("rows") filter ("table" not in ('events', 'quarantine')), 0), 0)::bigint as routed
    from erasures group by erasure order by min(erased_at), erasure"""

_TOTALS: Final = f"""
    select count(*) as ranges, count(distinct (topic_id, "partition")) as partitions,
        coalesce(sum(records), 0)::bigint as records, coalesce(sum(events), 0)::bigint as events,
        coalesce(sum(duplicates), 0)::bigint as duplicates, coalesce(sum(quarantined), 0)::bigint as quarantined,
        coalesce(sum(skipped), 0)::bigint as skipped,
        (select coalesce(sum("to" - "from" - "rows"), 0)::bigint from gaps) as lost_offsets,
        (select count(*) from gaps where reason = 'recreated') as partitions_lost,
        (select count(*) from ({ROWS_BEYOND})) as rows_of_a_batch_under_way from batches"""


def exactly_once(lake: LakeAddress | str, *, content: bool = False) -> list[Row]:
    """Prove that each record of the topics is in the tables once; with `content`, that its row is as it landed.

    Return a row for each check and one with the totals.
    """
    with connect(lake) as connection:
        there = checked(connection, TABLES_THERE)
        if not there["ok"]:
            return [there, {"check": "all of it", "ok": False, "detail": ""}]
        routes = [row["name"] for row in rows(connection, f"select name from {ROUTES} order by name")]
        checks = [*EXACTLY_ONCE, *(check for name in routes for check in of_route(name))]
        proof = [there, *(checked(connection, check) for check in checks)]
        if content:
            from headrace_cli.lake.content import proven  # only here: NumPy and pyarrow take a moment to load

            proof += proven(connection)
        totals = rows(connection, _TOTALS)[0]
        erased = rows(connection, _ERASURES)
    if erased:
        said = ({name: value for name, value in row.items() if value is not None} for row in erased[-_NAMED:])
        named = "; ".join(map(compact, said))
        counted = f"{len(erased)} erasures, the last of them: " if len(erased) > _NAMED else ""
        proof.append({"check": "what was erased on request", "ok": True, "detail": counted + named})
    landed = compact(totals) if totals["ranges"] else "nothing has landed yet"
    proof.append({"check": "all of it", "ok": all(row["ok"] for row in proof), "detail": landed})
    return proof
