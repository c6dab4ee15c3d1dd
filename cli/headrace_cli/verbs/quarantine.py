"""``quarantine replay``: publishes the events of items that are read once more, unless the lake has them."""

from __future__ import annotations

import asyncio
import time
from binascii import crc32
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, check_known
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
Publish = Callable[[Sequence[PublishedEvent]], Counter[str]]


@dataclass
class Row:
    """The outcome of the items of one reason and protocol."""

    items: int = 0
    understood: int = 0
    """Items that have left quarantine entirely."""
    events: int = 0
    in_the_lake: int = 0
    rest: Counter[str] = field(default_factory=Counter)
    """What the others are, in words."""


@dataclass
class Total:
    """A run. `refused`: why Kafka did not take events; `published`: how many it took."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    published: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def new(self) -> int:
        """Events that the lake does not have."""
        return sum(row.events - row.in_the_lake for row in self.rows.values())

    def count(self, item: QuarantinedItem, found: ReplayOutcome) -> Row:
        """Count an item's outcome; return its row."""
        row = self.rows.setdefault((item.reason, item.protocol), Row())
        row.items += 1
        row.events += len(found.events)
        row.rest += Counter({f"still {reason}": count for reason, count in found.rejects.items()})
        if found.impossible:
            row.rest[f"cannot be read again: {found.impossible}"] += 1
        elif not found.rejects:
            row.understood += 1
        return row


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
    total, reader, tables = Total(), ItemReader(), lake or state / "lake"

    def read() -> Iterator[tuple[Row, PublishedEvent]]:
        for item, problem in items_of(tables, reason or (), protocol or (), begin):
            found = ReplayOutcome(impossible=problem) if problem else reader.read(item)
            row = total.count(item, found)
            yield from ((row, event) for event in found.events)

    with publishing(kafka_settings(state, kafka)) if apply else nullcontext() as publish:
        for batch in _batches(read()):
            there = landed(tables, [event.id for _, event in batch])
            for row, event in batch:
                row.in_the_lake += event.id in there
            new = [event for _, event in batch if event.id not in there]
            if publish is not None and new:
                refused = publish(new)
                total.refused += refused
                total.published += len(new) - refused.total()
    _print(total, applied=apply)
    return EXIT_FAILED if total.refused else 0


def _batches(events: Iterable[tuple[Row, PublishedEvent]]) -> Iterator[list[tuple[Row, PublishedEvent]]]:
    batch: list[tuple[Row, PublishedEvent]] = []
    size = 0
    for row, event in events:
        batch.append((row, event))
        size += len(event.value)
        if len(batch) >= AT_ONCE or size >= AT_ONCE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _print(total: Total, *, applied: bool) -> None:
    if not total.rows:
        console.OUT.print("Nothing is in quarantine that fits.")
        return
    table = console.table("reason", "protocol", ">items", ">understood", ">events", ">in the lake", "~the rest")
    for (reason, protocol), row in sorted(total.rows.items()):
        rest = [f"{count:,} {what}" for what, count in row.rest.most_common(5)]
        table.add_row(
            printable(reason), printable(protocol), f"{row.items:,}", f"{row.understood:,}", f"{row.events:,}",
            f"{row.in_the_lake:,}", Text(printable("; ".join(rest))),
        )  # fmt: skip
    console.OUT.print(table, soft_wrap=False)
    if applied:
        console.ERR.print(f"{total.published:,} events were published; quarantine keeps its records.")
    elif total.new:
        console.ERR.print(f"--apply publishes {total.new:,} events; nothing was changed.")
    for why, count in total.refused.items():
        console.ERR.print(Text(f"Kafka refused {count:,} events: {printable(why)}", style="red"))


@contextmanager
def publishing(settings: KafkaSettings) -> Iterator[Publish]:
    """Open a producer to the events topic. Gives a function that stores events, and returns why some were refused, with how many;
    those of one source keep their order. It blocks while Kafka works.
    """
    with asyncio.Runner() as runner:
        topic, producer = runner.run(_started(settings))
        try:
            yield lambda events: runner.run(_publish(settings, topic, producer, events))
        finally:
            runner.run(producer.close())


async def _started(settings: KafkaSettings) -> tuple[Topic, Producer]:
    await check_reachable(settings)
    topic, producer = (await describe(settings))[0], Producer(settings)
    try:
        await producer.open((topic.name,))
    except DeliveryError as error:
        raise CommandError(str(error)) from error
    return topic, producer


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
