"""``quarantine replay``: publishes the events of items that are read once more, unless the lake has them."""

from __future__ import annotations

import asyncio
import time
from binascii import crc32
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final

import typer
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import Topic, describe
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import builder_of
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.settings import KafkaSettings
from headrace_common.protocol import installed
from headrace_common.record.contract import EventHeader, Reason, RecordFault
from headrace_common.record.encoding import encode
from headrace_common.session.again import PublishedEvent, QuarantinedItem, ReplayOutcome
from headrace_reader.address import LakeAddress
from headrace_reader.tables import connect
from headrace_reader.text import printable
from rich.text import Text

from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, check_known
from headrace_cli.options import KafkaOption, LakeOption, StateOption, examples, parse_moment
from headrace_cli.stack.reach import check_reachable, kafka_settings
from headrace_cli.wire.items import ItemReader, items_of

AT_ONCE: Final = 2_000
"""The most events that are looked up and published together, or `AT_ONCE_BYTES` of them."""
AT_ONCE_BYTES: Final = 16 << 20

_SOURCE: Final = EventHeader.SOURCE
app = typer.Typer()
quarantine = typer.Typer(
    name="quarantine",
    help="Replay what could not be understood and has landed. query --named rejects lists it, tap --quarantine shows what comes.",
    no_args_is_help=True,
)
app.add_typer(quarantine)
Publish = Callable[[Sequence[PublishedEvent]], Awaitable[Counter[str]]]


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
    """Return how many events the lake has, how many it has not, and why Kafka refused some of these; publish them with
    `settings`.
    """
    known = new = 0
    refused: Counter[str] = Counter()
    async with publishing(settings) if settings is not None else nullcontext() as publish:
        for batch in batches:
            there = landed(lake, [event.id for event in batch])
            fresh = [event for event in batch if event.id not in there]
            known, new = known + len(batch) - len(fresh), new + len(fresh)
            if publish is not None and fresh:
                refused += await publish(fresh)
    return known, new, refused


@asynccontextmanager
async def publishing(settings: KafkaSettings) -> AsyncIterator[Publish]:
    """Open a producer to the events topic. Gives a function that stores events, and returns why some were refused, with how many;
    those of one source keep their order.
    """
    await check_reachable(settings)
    topic, producer = (await describe(settings))[0], Producer(settings)
    try:
        await producer.open((topic.name,))
        yield partial(_publish, settings, topic, producer)
    finally:
        await producer.close()


async def _publish(
    settings: KafkaSettings, topic: Topic, producer: Producer, events: Sequence[PublishedEvent]
) -> Counter[str]:
    refused: Counter[str] = Counter()
    deadline, now_ms = asyncio.get_running_loop().time() + settings.ack_deadline, time.time_ns() // 1_000_000

    async def store(partition: int, waiting: Sequence[PublishedEvent]) -> None:
        """Stores events in order, each by itself, so that one which Kafka refuses harms no other."""
        for event in waiting:
            batch = builder_of([(encode(event.value, event.headers), now_ms)])
            try:
                await producer.store(TopicPartition(topic.name, partition), batch, deadline)
            except DeliveryError as error:
                refused[str(error)] += 1

    by_partition: defaultdict[int, list[PublishedEvent]] = defaultdict(list)
    for event in events:
        by_partition[crc32(dict(event.headers)[_SOURCE]) % topic.partitions].append(event)
    await asyncio.gather(*(store(partition, found) for partition, found in by_partition.items()))
    return refused


def landed(lake: LakeAddress, ids: Sequence[str]) -> set[str]:
    """Return those of `ids` that are in the lake's events. Raises `CommandError` without a lake."""
    with connect(lake) as connection:
        if not connection.execute("select 1 from duckdb_views() where view_name = 'events'").fetchall():
            return set()
        found = connection.execute("select event_id from events where event_id in (select unnest(?))", [list(ids)])
        return {row[0] for row in found.fetchall()}
