"""Whether anything was lost: what the tables say, and what Kafka says of them.

A check is a row: `ok` is True, False if something was lost, or None if it cannot be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from headrace_reader import against_kafka
from headrace_reader.address import LakeAddress
from headrace_reader.logjam import LOSSES as LOGJAM_LOSSES
from headrace_reader.proof import OF_ERASING, exactly_once
from headrace_reader.tables import Row, connect, rows

from headrace_cli.ground import CommandError
from headrace_cli.stack.reach import check_reachable

# ruff: noqa: S608  (the SQL is assembled from constants and a time that we have parsed)
PROOF: Final = "exactly-once"
GAPS: Final = "gaps"
LOGJAM: Final = "logjam"
QUARANTINE: Final = "quarantine"
UNACKNOWLEDGED: Final = "unacknowledged"
KAFKA: Final = "kafka"
CONTENT: Final = "content"

_GAPS: Final = """
    select count(*) as n, coalesce(sum("to" - "from" - "rows"), 0)::bigint as lost,
        count(*) filter (where "to" is null) as whole, string_agg(distinct reason, ', ') as reasons
    from gaps where {recent} and ("to" is null or "to" - "from" > "rows")"""
_LOGJAM: Final = f"""
    select count(*) as n, coalesce(sum(numbers), 0)::bigint as numbers, count(distinct (source, device)) as devices
    from ({LOGJAM_LOSSES}) where {{recent}}"""
_QUARANTINE: Final = """
    select reason, count(distinct (coalesce(id, concat(topic, '-', "partition", '-', "offset")), sha256)) as n
    from quarantine where {recent} group by all order by n desc"""

_UNACKNOWLEDGED: Final = """
    select protocol, count(*) as n from events where {recent}
        and (protocol in ('logjam', 'syslog') or (protocol = 'forward' and (attributes ->> '$.chunk') is null))
    group by all order by protocol"""
"""Events that came without an acknowledgement; of Logjam all, since nothing tells them apart."""


def _check(name: str, ok: bool | None, detail: str) -> Row:
    return {"check": name, "ok": ok, "detail": detail}


def of_tables(lake: LakeAddress, since: datetime | None = None) -> Iterator[Row]:
    """Yield the checks of the tables alone. Raises `CommandError` if they cannot be read."""
    recent = f"{{}} >= timestamptz '{since.isoformat()}'" if since is not None else "true"
    *proof, summary = exactly_once(lake)
    wrong = [row for row in proof if not row["ok"]]
    if not wrong:
        yield _check(PROOF, True, summary["detail"])
    else:
        said = "; ".join(f"not so: {row['check']} ({row['detail']})" for row in wrong)
        erasing = all(row["check"].startswith(OF_ERASING) for row in wrong)
        finish = "./headrace lake erase --finish --apply ends an erasure"
        help_ = finish if erasing else "docs/lake-query.md explains it"
        yield _check(PROOF, None if erasing else False, f"{said}; {help_}")
    with connect(lake) as connection:
        (gaps,) = rows(connection, _GAPS.format(recent=recent.format("landed_at")))
        whole = f", and partitions of a topic that was recreated: {gaps['whole']}" if gaps["whole"] else ""
        lost = f"{gaps['lost']:,} offsets were lost before they landed ({gaps['reasons']}){whole}: query --named gaps"
        yield _check(GAPS, not gaps["n"], lost if gaps["n"] else "Kafka deleted nothing that had not landed")
        (missing,) = rows(connection, _LOGJAM.format(recent=recent.format("received_time")))
        devices = (
            f"{missing['numbers']:,} numbers of {missing['devices']} Logjam devices never came: query --named losses"
        )
        yield _check(LOGJAM, not missing["n"], devices if missing["n"] else "no number of a Logjam device is missing")
        found = rows(connection, _QUARANTINE.format(recent=recent.format("landed_at")))
        kept = ", ".join(f"{row['n']:,} {row['reason']}" for row in found)
        yield _check(QUARANTINE, True, f"kept byte for byte: {kept or 'nothing'}")
        if came := rows(connection, _UNACKNOWLEDGED.format(recent=recent.format("landed_at"))):
            counted = ", ".join(f"{row['n']:,} events by {row['protocol']}" for row in came)
            said = f"what clients that ask for no acknowledgement lost on the way here cannot be told: {counted}"
            yield _check(UNACKNOWLEDGED, True, said)


def of_kafka(settings: KafkaSettings, lake: LakeAddress, *, content: bool = False) -> Iterator[Row]:
    """Compare where the tables end with what Kafka holds; with `content`, each record that it holds with its row, too."""
    try:
        asyncio.run(check_reachable(settings))
        beyond, overtaken, left, *contents = against_kafka.checks(settings, lake, content=content)
    except CommandError as error:
        yield _check(KAFKA, None, str(error))
        return
    wrong = "; ".join(f"not so: {row['check']} ({row['detail']})" for row in (beyond, overtaken) if not row["ok"])
    yield _check(KAFKA, not wrong, wrong or f"the tables end where its partitions allow; {left['detail']}")
    if contents:
        same, compared = contents
        as_held = f"{compared['detail']} are in their rows as Kafka holds them"
        differs = f"{same['detail']}: delete these rows and replay them"
        yield _check(CONTENT, same["ok"], as_held if same["ok"] else differs)
