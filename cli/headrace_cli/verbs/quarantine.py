"""``quarantine replay``: publishes the events of items that are read once more, unless the lake has them."""

from __future__ import annotations

import asyncio
import time
from binascii import crc32
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, check_known
from headrace_cli.options import KafkaOption, LakeOption, StateOption, examples, parse_moment

if TYPE_CHECKING:
    from headrace_common.operations.settings import KafkaSettings
    from headrace_common.session.again import PublishedEvent, QuarantinedItem, ReplayOutcome
    from headrace_reader.address import LakeAddress

AT_ONCE: Final = 2_000
"""The most events that are looked up and published together, or `AT_ONCE_BYTES` of them."""
AT_ONCE_BYTES: Final = 16 << 20

app = typer.Typer()
quarantine = typer.Typer(
    name="quarantine",
    help="Replay what could not be understood and has landed. query --named rejects lists it, tap --quarantine shows what comes.",
    no_args_is_help=True,
)
app.add_typer(quarantine)


@quarantine.command(
    epilog=examples(
        "HEADRACE_LIMITS__EVENT_BYTES=4MiB ./headrace quarantine replay --reason oversized",
        "./headrace quarantine replay --reason internal --since 7d --apply",
    )
)
def replay(
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    kafka: KafkaOption = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="REASON", help="Only this reason; may be repeated.")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this protocol; may be repeated.")
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="Only from here on: an ISO time, or 10m, 1d ago.")] = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Publish the events; without it they are only counted.")
    ] = False,
) -> int:
    """Read it once more, with this version and the settings now given, and publish what is understood, with the same ids."""
    from headrace_common.protocol import installed
    from headrace_common.record.contract import Reason, RecordFault
    from headrace_reader.text import printable
    from rich.text import Text

    from headrace_cli import console
    from headrace_cli.stack.reach import kafka_settings
    from headrace_cli.wire.items import items_of

    check_known("--reason", reason or (), [*Reason, *RecordFault])
    check_known("--protocol", protocol or (), [each.name for each in installed()])
    begin = parse_moment(since, "--since", datetime.now(UTC)) if since else None
    tables, outcomes = lake or state / "lake", Counter[tuple[str, str, str]]()
    items = items_of(tables, reason or (), protocol or (), begin)
    settings = kafka_settings(state, kafka) if apply else None
    known, new, refused = asyncio.run(_run(_batches(_events(items, outcomes)), tables, settings))
    if not outcomes:
        console.OUT.print("Nothing is in quarantine that fits.")
        return 0
    table = console.table("reason", "protocol", ">items", "~outcome")
    for (kind, speaks, outcome), count in sorted(outcomes.items()):
        table.add_row(printable(kind), printable(speaks), f"{count:,}", Text(printable(outcome)))
    console.OUT.print(table, soft_wrap=False)
    console.ERR.print(f"{known + new:,} events, of which the lake has {known:,}.")
    if settings is not None:
        console.ERR.print(f"{new - refused.total():,} events were published; quarantine keeps its records.")
    elif new:
        console.ERR.print(f"--apply publishes {new:,} events; nothing was changed.")
    for why, count in refused.items():
        console.ERR.print(Text(f"Kafka refused {count:,} events: {printable(why)}", style="red"))
    return EXIT_FAILED if refused else 0


def _events(
    items: Iterable[tuple[QuarantinedItem, str]], outcomes: Counter[tuple[str, str, str]]
) -> Iterator[PublishedEvent]:
    """Yield the events of all items; count the items by reason, protocol and outcome."""
    from headrace_common.session.again import ReplayOutcome

    from headrace_cli.wire.items import ItemReader

    reader = ItemReader()
    for item, problem in items:
        found = ReplayOutcome(impossible=problem) if problem else reader.read(item)
        outcomes[item.reason, item.protocol, outcome_of(found)] += 1
        yield from found.events


def outcome_of(found: ReplayOutcome) -> str:
    """Return the outcome of an item in words: it is understood if nothing of it stays in quarantine."""
    if found.impossible:
        return f"cannot be read again: {found.impossible}"
    return f"still {', '.join(sorted(found.rejects))}" if found.rejects else "understood"


def _batches(events: Iterable[PublishedEvent]) -> Iterator[list[PublishedEvent]]:
    batch: list[PublishedEvent] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event.value)
        if len(batch) >= AT_ONCE or size >= AT_ONCE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _run(
    batches: Iterable[list[PublishedEvent]], lake: LakeAddress, settings: KafkaSettings | None
) -> tuple[int, int, Counter[str]]:
    """Return how many events the lake has, how many it has not, and why Kafka refused some of these.

    With `settings` these are published, in order, each by itself, so that one which Kafka refuses harms no other.
    """
    from aiokafka.structs import TopicPartition
    from headrace_common.kafka.client import describe
    from headrace_common.kafka.producer import Producer
    from headrace_common.kafka.record_batch import builder_of
    from headrace_common.operations.errors import DeliveryError
    from headrace_common.record.contract import EventHeader
    from headrace_common.record.encoding import encode

    from headrace_cli.stack.reach import check_reachable

    known, new, refused, producer = 0, 0, Counter[str](), None
    try:
        if settings is not None:
            await check_reachable(settings)
            topic, producer = (await describe(settings))[0], Producer(settings)
            await producer.open((topic.name,))
        for batch in batches:
            there = landed(lake, [event.id for event in batch])
            fresh = [event for event in batch if event.id not in there]
            known, new = known + len(batch) - len(fresh), new + len(fresh)
            if settings is None or producer is None:
                continue
            for event in fresh:
                record = builder_of([(encode(event.value, event.headers), time.time_ns() // 1_000_000)])
                number = crc32(dict(event.headers)[EventHeader.SOURCE]) % topic.partitions
                deadline = asyncio.get_running_loop().time() + settings.ack_deadline
                try:
                    await producer.store(TopicPartition(topic.name, number), record, deadline)
                except DeliveryError as error:
                    refused[str(error)] += 1
    finally:
        if producer is not None:
            await producer.close()
    return known, new, refused


def landed(lake: LakeAddress, ids: Sequence[str]) -> set[str]:
    """Return those of `ids` that are in the lake's events. Raises `CommandError` without a lake."""
    from headrace_reader.tables import connect

    with connect(lake) as connection:
        if not connection.execute("select 1 from duckdb_views() where view_name = 'events'").fetchall():
            return set()
        found = connection.execute("select event_id from events where event_id in (select unnest(?))", [list(ids)])
        return {row[0] for row in found.fetchall()}
