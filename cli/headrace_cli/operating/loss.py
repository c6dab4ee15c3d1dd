"""Whether anything was lost: what the tables say, and what Kafka says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from headrace_reader import against_kafka
from headrace_reader.address import LakeAddress
from headrace_reader.logjam import LOSSES as LOGJAM_LOSSES
from headrace_reader.proof import OF_ERASING, exactly_once
from headrace_reader.tables import Row, connect, rows

from headrace_cli.ground import CommandError
from headrace_cli.operating.findings import CheckResult, Severity
from headrace_cli.stack.reach import check_reachable

# ruff: noqa: S608  (the SQL is assembled from constants and a time that we have parsed)

PROOF: Final = "exactly-once"
GAPS: Final = "gaps"
LOGJAM: Final = "logjam"
QUARANTINE: Final = "quarantine"
KAFKA: Final = "kafka"
CONTENT: Final = "content"


def run(sql: str, lake: LakeAddress) -> list[Row]:
    with connect(lake) as connection:
        return rows(connection, sql)


def of_tables(lake: LakeAddress, since: datetime | None = None) -> Iterator[CheckResult]:
    """Yield the findings of the tables alone. Raises `CommandError` if they cannot be read."""
    recent = f"landed_at >= timestamptz '{since.isoformat()}'" if since is not None else "true"
    yield _proof(exactly_once(lake))
    yield _gaps(lake, recent)
    yield _logjam(lake, recent.replace("landed_at", "received_time"))
    found = run(
        """select reason, count(distinct (coalesce(id, concat(topic, '-', "partition", '-', "offset")), sha256)) as n"""
        f" from quarantine where {recent} group by all order by n desc",
        lake,
    )
    named = ", ".join(f"{row['n']:,} {row['reason']}" for row in found)
    yield CheckResult(QUARANTINE, Severity.FINE, f"kept byte for byte: {named or 'nothing'}")


def _proof(rows: Sequence[Row]) -> CheckResult:
    wrong = [row for row in rows[:-1] if not row["ok"]]
    if not wrong:
        return CheckResult(PROOF, Severity.FINE, rows[-1]["detail"])
    reason = "; ".join(f"not so: {row['check']} ({row['detail']})" for row in wrong)
    if all(row["check"].startswith(OF_ERASING) for row in wrong):
        unfinished = "an erasure is under way, or was killed: ./headrace lake erase --finish --apply"
        return CheckResult(PROOF, Severity.DOUBT, reason, unfinished)
    return CheckResult(
        PROOF, Severity.WRONG, reason, "docs/lake-query.md, 'Useful queries', says what each line of the proof means"
    )


def _gaps(lake: LakeAddress, recent: str) -> CheckResult:
    (found,) = run(
        'select count(*) as n, coalesce(sum("to" - "from" - "rows"), 0)::bigint as lost,'
        " count(*) filter (where \"to\" is null) as whole, string_agg(distinct reason, ', ') as reasons"
        f" from gaps where {recent}"
        ' and ("to" is null or "to" - "from" > "rows")',
        lake,
    )
    if not found["n"]:
        return CheckResult(GAPS, Severity.FINE, "Kafka deleted nothing that had not landed")
    whole = f", and partitions of a topic that was recreated: {found['whole']}" if found["whole"] else ""
    reason = f"{found['lost']:,} offsets were lost before they landed ({found['reasons']}){whole}"
    return CheckResult(
        GAPS, Severity.WRONG, reason, "./headrace query --named gaps has the ranges; clients may hold them still"
    )


def _logjam(lake: LakeAddress, recent: str) -> CheckResult:
    (found,) = run(
        "select count(*) as n, coalesce(sum(numbers), 0)::bigint as numbers, count(distinct (source, device)) as devices"
        f" from ({LOGJAM_LOSSES}) where {recent}",
        lake,
    )
    if not found["n"]:
        return CheckResult(LOGJAM, Severity.FINE, "no number of a Logjam device is missing")
    reason = f"{found['numbers']:,} numbers of {found['devices']} Logjam devices never came, in {found['n']:,} gaps"
    return CheckResult(
        LOGJAM,
        Severity.WRONG,
        reason,
        "./headrace query --named losses has the ranges; docs/runbooks.md says why devices drop",
    )


def of_kafka(settings: KafkaSettings | None, lake: LakeAddress, *, content: bool = False) -> Iterator[CheckResult]:
    """Compare where the tables end with what Kafka holds; with `content`, each record that it holds with its row, too."""
    if settings is None:
        yield CheckResult(KAFKA, Severity.UNKNOWN, "not compared: no Kafka is known", "name it with --kafka HOST:PORT")
        return
    landed: dict[against_kafka.Place, int] = {
        (row["topic"], row["partition"]): row["landed_to"] for row in run(against_kafka.LANDED, lake)
    }
    topics = {settings.events_topic, settings.quarantine_topic, *(topic for topic, _ in landed)}
    try:
        asyncio.run(check_reachable(settings))
        *checks, left = against_kafka.compare(landed, against_kafka.held(settings, topics))
    except CommandError as error:
        yield CheckResult(KAFKA, Severity.DOUBT, str(error))
        return
    wrong = [row for row in checks if not row["ok"]]
    if wrong:
        reason = "; ".join(f"not so: {row['check']} ({row['detail']})" for row in wrong)
        yield CheckResult(KAFKA, Severity.WRONG, reason, "the landing job's log says which offsets")
    else:
        yield CheckResult(KAFKA, Severity.FINE, f"the tables end where its partitions allow; {left['detail']}")
    if content:
        same, compared = against_kafka.contents(settings, lake)
        if same["ok"]:
            yield CheckResult(CONTENT, Severity.FINE, f"{compared['detail']} are in their rows as Kafka holds them")
        else:
            yield CheckResult(CONTENT, Severity.WRONG, same["detail"], "delete these rows and replay them")
