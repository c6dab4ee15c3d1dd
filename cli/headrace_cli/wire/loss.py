"""``check-loss``: whether anything was lost, or may be: one verdict with reasons, for cron and CI."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import describe, explain, make_consumer
from headrace_common.operations.settings import KafkaSettings
from headrace_common.protocol import installed
from headrace_common.record.contract import GapField, GapReason
from headrace_reader import against_kafka
from headrace_reader.address import LakeAddress
from headrace_reader.against_kafka import Place
from headrace_reader.proof import OF_ERASING, exactly_once
from headrace_reader.tables import Row

from headrace_cli.ground import DEFAULT_STATE, EXIT_DOUBT, EXIT_FAILED, EXIT_NOTHING_RUNS, CommandError, check_known
from headrace_cli.operating.exposition import Parts, Scrape, parts_of, scrape_all
from headrace_cli.operating.parts import CheckResult, Severity, show
from headrace_cli.operating.records import parse_moment
from headrace_cli.stack.reach import check_reachable, kafka_settings
from headrace_cli.verbs import query
from headrace_cli.verbs.options import KafkaOption, LakeOption, StateOption, UrlOption, examples
from headrace_cli.wire.quarantined.items import Item, ItemFilter, ItemReader, items_of
from headrace_cli.wire.quarantined.replay import landed

# ruff: noqa: S608  (the SQL is assembled from constants and a time that we have parsed)


PROOF: Final = "exactly-once"
KAFKA: Final = "kafka"
GAPS: Final = "gaps"
LOGJAM: Final = "logjam"
QUARANTINE: Final = "quarantine"
UNACKNOWLEDGED: Final = "unacknowledgeable"
LAG: Final = "lag"
CHECKS: Final = (PROOF, KAFKA, GAPS, LOGJAM, QUARANTINE, UNACKNOWLEDGED, LAG)

LOW: Final = 0.1
"""Share of the retention, by time or by bytes, that the oldest record must have left, as the landing job warns."""
READ_AGAIN: Final = 2_000
"""Most items of quarantine, the newest, that are read once more to see whether they were replayed."""


app = typer.Typer()


@app.command(
    "check-loss",
    epilog=examples(
        "./headrace check-loss",
        "./headrace check-loss --since 1d --ignore quarantine --json",
        "./headrace check-loss --lake /data/lake --kafka kafka-1:9092 --url http://receiver-1:8080",
    ),
)
def check_loss(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="What landed since an ISO time, or within this time: 1d.",
        ),
    ] = "",
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Show this check, and do not count it; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> int:
    """Say whether anything was lost, or may be, and why: 0 if not, 1 if lost, 4 if in doubt. For cron and CI."""
    check_known("--ignore", ignore or (), CHECKS)
    begin = parse_moment(since, "--since", datetime.now(UTC)) if since else None
    tables = lake or state / "lake"
    parts = _parts(state, url or ())
    try:
        findings = [*of_tables(tables, begin), *_of_kafka(state, kafka, tables)]
        findings.append(of_parts(scrape_all(parts), unacknowledged(tables, begin)))
    except CommandError as error:
        if error.status != EXIT_FAILED:
            raise
        raise CommandError(str(error), status=EXIT_DOUBT) from error  # 1 says that something was lost
    findings.sort(key=lambda found: CHECKS.index(found.check))
    bad = [found for found in findings if found.bad and found.check not in (ignore or ())]
    lost = any(found.verdict is Severity.WRONG for found in bad)
    verdict = f"{'lost' if lost else 'in doubt'}: {', '.join(found.check for found in bad)}"
    if not bad:
        unseen = [found.check for found in findings if found.verdict is Severity.UNKNOWN]
        verdict = "nothing was lost" + (f", without a look at {', '.join(unseen)}" if unseen else "")
    show(findings, verdict, fine=not bad, as_json=as_json)
    return (EXIT_FAILED if lost else EXIT_DOUBT) if bad else 0


def _parts(path: Path, urls: Sequence[str]) -> Parts:
    try:
        return asyncio.run(parts_of(path, urls))
    except CommandError as error:
        if urls or error.status != EXIT_NOTHING_RUNS:
            raise
        return []


def of_tables(lake: LakeAddress, since: datetime | None = None) -> list[CheckResult]:
    """Return the findings of the tables alone. Raises `CommandError` if they cannot be read."""
    recent = f"landed_at >= timestamptz '{since.isoformat()}'" if since is not None else "true"
    return [
        _proof(exactly_once(lake)),
        _gaps(lake, recent),
        _logjam(lake, recent),
        _quarantine(lake, recent, since),
    ]


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
    (found,) = query.run(
        'select count(*) as n, coalesce(sum("to" - "from" - "rows"), 0)::bigint as lost, min(landed_at) as first,'
        " count(*) filter (where \"to\" is null) as whole, string_agg(distinct reason, ', ') as reasons"
        f" from gaps where reason not in ('{GapReason.LOGJAM}', '{GapReason.JOINED}') and {recent}"
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
    first = f"(reason = '{GapReason.JOINED}' or (from_sequence = 1 and detail not like '%\"{GapField.AFTER}\":%'))"
    missing = f"reason = '{GapReason.LOGJAM}' and covered is not true and not coalesce({first}, false)"
    (found,) = query.run(
        f"select count(*) filter ({missing}) as n, count(*) filter (reason = '{GapReason.JOINED}') as joined,"
        f" coalesce(sum(to_sequence - from_sequence) filter ({missing}), 0)::bigint as numbers,"
        f" count(distinct (source, device)) filter ({missing}) as devices from gaps where {recent}",
        lake,
    )
    if not found["n"]:
        before = f"; what {found['joined']:,} published before we heard them is not counted" if found["joined"] else ""
        return CheckResult(LOGJAM, Severity.FINE, f"no number of a Logjam device is missing{before}")
    reason = f"{found['numbers']:,} numbers of {found['devices']} Logjam devices never came, in {found['n']:,} gaps"
    return CheckResult(
        LOGJAM, Severity.WRONG, reason, "docs/runbooks.md says why devices drop; a second consumer covers gaps"
    )


def _quarantine(lake: LakeAddress, recent: str, since: datetime | None) -> CheckResult:
    """Count items, not records: several parts or copies of an item are one. Replayed items that have landed do not count."""
    place = """concat(topic, '-', "partition", '-', "offset")"""
    rows = query.run(
        f"select reason, protocol, count(distinct (coalesce(id, {place}), sha256)) as n from quarantine"
        f" where {recent} group by all",
        lake,
    )
    if not rows:
        return CheckResult(QUARANTINE, Severity.FINE, "everything was understood")
    settled = replayed(lake, since)
    left = Counter({(row["reason"], row["protocol"]): row["n"] for row in rows}) - settled
    again = f"{settled.total():,} were replayed, and have landed"
    if not left:
        return CheckResult(QUARANTINE, Severity.FINE, f"all that was in quarantine has landed by now: {again}")
    named = ", ".join(f"{n:,} {reason} by {protocol or 'unknown'}" for (reason, protocol), n in left.most_common(3))
    reason = f"{left.total():,} were not understood, and are kept byte for byte: {named}"
    return CheckResult(
        QUARANTINE,
        Severity.DOUBT,
        f"{reason}; {again}" if settled else reason,
        "./headrace quarantine list and show have them; docs/operations.md explains",
    )


def replayed(lake: LakeAddress, since: datetime | None = None) -> Counter[tuple[str, str]]:
    """Return how many items of the newest `READ_AGAIN`, by reason and protocol, are events in the lake by now, whole.

    Limits of this process do not matter: the bytes are read with wide ones, since a replay may have had those.
    """
    reader = ItemReader(wide=True)
    events: dict[str, list[str]] = {}
    items: dict[str, Item] = {}
    for item in islice(items_of(lake, ItemFilter(landed_since=since), content=True), READ_AGAIN):
        found = reader.read(item)
        if found.events and not found.rejects and not found.impossible:
            key = f"{item.name} {item.sha256}"
            events[key], items[key] = [event.id for event in found.events], item
    there = landed(lake, [name for names in events.values() for name in names]) if events else set()
    whole = [items[key] for key, names in events.items() if there.issuperset(names)]
    return Counter((item.reason, item.protocol) for item in whole)


def unacknowledged(lake: LakeAddress, since: datetime | None = None) -> dict[str, int]:
    """Return how many events landed, by protocol, whose clients asked for no acknowledgement: since then, or in the last day.

    Their attributes say so. A receiver that has started again has counted none of them.
    """
    asking = {each.name: each.asked for each in installed() if each.asked}
    begin = f"timestamptz '{since.isoformat()}'" if since is not None else "now() - interval 1 day"
    unasked = " or ".join(
        f"(protocol = '{name}' and (attributes is null or attributes not like '%\"{attribute}\":%'))"
        for name, attribute in asking.items()
    )
    rows = query.run(
        f"select protocol, count(*) as n from events where landed_at >= {begin} and ({unasked or 'false'})"
        " group by all order by all",
        lake,
    )
    return {row["protocol"]: row["n"] for row in rows}


def _of_kafka(state: Path, named: str | None, lake: LakeAddress) -> list[CheckResult]:
    try:
        settings = kafka_settings(state, named)
    except CommandError as error:
        if named is not None or error.status != EXIT_NOTHING_RUNS:
            raise
        return [
            CheckResult(name, Severity.UNKNOWN, "not compared: no Kafka is known", "name it with --kafka HOST:PORT")
            for name in (KAFKA, LAG)
        ]
    asyncio.run(check_reachable(settings))
    landed: dict[against_kafka.Place, int] = {
        (row["topic"], row["partition"]): row["landed_to"] for row in query.run(against_kafka.LANDED, lake)
    }
    topics = {settings.events_topic, settings.quarantine_topic, *(topic for topic, _ in landed)}
    return of_kafka(settings, landed, against_kafka.held(settings, topics))


def of_kafka(
    settings: KafkaSettings,
    landed: Mapping[against_kafka.Place, int],
    offsets: Mapping[against_kafka.Place, tuple[int, int]],
) -> list[CheckResult]:
    """Compare where the tables end with what Kafka holds, and with how long it will."""
    *checks, left = against_kafka.compare(landed, offsets)
    wrong = [row for row in checks if not row["ok"]]
    if wrong:
        reason = "; ".join(f"not so: {row['check']} ({row['detail']})" for row in wrong)
        ends = CheckResult(KAFKA, Severity.WRONG, reason, "the landing job's log says which offsets")
    else:
        ends = CheckResult(KAFKA, Severity.FINE, f"the tables end where its partitions allow; {left['detail']}")
    behind = asyncio.run(waiting(settings, landed, offsets))
    low = [each for each in behind if each.doubtful]
    if low:
        worst = max(low, key=lambda each: each.count)
        reason = (
            f"Kafka may soon delete unlanded records: {worst.count:,} records of {worst.place[0]}/{worst.place[1]}"
            + (f", and of {len(low) - 1} other partitions" if len(low) > 1 else "")
        )
        return [
            ends,
            CheckResult(LAG, Severity.DOUBT, reason, "raise the topic's retention now; then see why landing is slow"),
        ]
    return [ends, CheckResult(LAG, Severity.FINE, f"{sum(each.count for each in behind):,} offsets wait to be landed")]


def of_parts(scrapes: Sequence[Scrape], landed_unasked: Mapping[str, int] | None = None) -> CheckResult:
    """Compare the receivers' counts since they started with what had landed before. Those that do not answer cannot be asked."""
    receivers = [found for found in scrapes if found.problem or found.has("headrace_events_unacknowledgeable_total")]
    silent = [found for found in receivers if found.problem and found.service != "lake"]
    counted: Callable[[Scrape], float] = lambda found: found.total("headrace_events_unacknowledgeable_total")  # noqa: E731
    told = [f"{found.service} {counted(found):,.0f} since it started" for found in receivers if counted(found)]
    told += [f"{name} {count:,} of those that have landed" for name, count in (landed_unasked or {}).items()]
    if told:
        reason = f"events came from clients that ask for no acknowledgement: they would not notice a loss ({', '.join(told)})"
        advice = "let them ask: ./headrace snippet has configurations that do"
        return CheckResult(UNACKNOWLEDGED, Severity.DOUBT, reason, advice)
    if silent:
        who = "; ".join(f"{found.service}: {found.problem}" for found in silent)
        return CheckResult(UNACKNOWLEDGED, Severity.UNKNOWN, f"some receivers could not be asked: {who}")
    if not receivers:
        return CheckResult(UNACKNOWLEDGED, Severity.UNKNOWN, "no receiver is known", "name them with --url")
    starts = [found.most("process_start_time_seconds") for found in receivers]
    youngest = max((start for start in starts if start is not None), default=None)
    when = f" at {datetime.fromtimestamp(youngest, UTC):%Y-%m-%d %H:%M:%S}Z" if youngest is not None else ""
    return CheckResult(
        UNACKNOWLEDGED,
        Severity.FINE,
        f"every client has asked for acknowledgements since the last receiver started{when}",
    )


@dataclass(frozen=True)
class Backlog:
    """Records of a partition that have not landed. `doubtful`: Kafka may soon delete the oldest."""

    place: Place
    count: int
    doubtful: bool


async def waiting(
    settings: KafkaSettings, landed: Mapping[Place, int], offsets: Mapping[Place, tuple[int, int]]
) -> list[Backlog]:
    """Return the partitions with records that have not landed. `offsets`: first and end of each partition in Kafka.

    Raises `CommandError`, `DeliveryError`.
    """
    topics = {topic.name: topic.configuration for topic in await describe(settings)}
    oldest = {place: max(first, landed.get(place, first)) for place, (first, _) in offsets.items()}
    behind = [place for place, (_, end) in offsets.items() if end > oldest[place]]
    moments = {}
    for place in behind:
        retention = int(topics.get(place[0], {}).get("retention.ms", "-1"))
        if retention >= 0:
            moments[TopicPartition(*place)] = int(1000 * time.time() - (1 - LOW) * retention)
    young = await _first_since(settings, moments) if moments else {}
    found = []
    for place in behind:
        first, end = offsets[place]
        by_time = place in young and young[place] > oldest[place]
        full = first > 0 and int(topics.get(place[0], {}).get("retention.bytes", "-1")) >= 0
        found.append(Backlog(place, end - oldest[place], by_time or (full and is_near(first, oldest[place], end))))
    return found


def is_near(first: int, oldest: int, end: int) -> bool:
    """Return whether a partition that is full and begins at `first` may soon be without the record at `oldest`."""
    return oldest - first < LOW * (end - first)


async def _first_since(settings: KafkaSettings, moments: Mapping[TopicPartition, int]) -> dict[Place, float]:
    """Return the first offset of each partition that was stored since its moment, in Unix milliseconds; infinite if none was."""
    consumer = make_consumer(settings, auto_offset_reset="earliest")
    try:
        await consumer.start()
        found = await consumer.offsets_for_times(moments)
        return {tuple(place): float("inf") if at is None else at.offset for place, at in found.items()}
    except KafkaError as error:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error
    finally:
        await consumer.stop()
