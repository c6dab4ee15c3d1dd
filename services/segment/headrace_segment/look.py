"""Looks at segments, and ends them: ``python -m headrace_segment ls|cat|info|seal|delete``. For people; no service need run.

It reads the topics as a replica does. A change is a record in the log like any other, so every replica learns of it.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiokafka.errors import KafkaError
from headrace_common.connection.backend import Caller
from headrace_common.kafka.client import describe, explain, make_producer
from headrace_common.operations import log
from headrace_common.operations.errors import (
    EXIT_CONFIG,
    EXIT_INTERRUPTED,
    EXIT_UNWRITTEN,
    ConfigError,
    DeliveryError,
    DeliveryPolicy,
)
from headrace_common.operations.settings import load
from headrace_common.publishing.partitions import partition_of
from headrace_common.session.interface import Peer, Ticket
from typing_extensions import override

from headrace_segment.questions import ChangeSegment
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.replica.segments import new_id
from headrace_segment.serving import ServedSessions
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.outcomes import Changed
from headrace_segment.store.reading import Gathering
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import Delete, Seal
from headrace_segment.store.state import Segment

PIECE: Final = 1 << 20
PATIENCE: Final = 60.0
"""Seconds within which Kafka must answer."""

EXIT_FAILED: Final = 1


class _Asker(Caller):
    """The caller that waits for the answer to one question."""

    def __init__(self) -> None:
        self.peer = Peer("", 0, "")
        self.answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self.answer.set_result(answer)

    @override
    def tell(self, word: object) -> None:
        pass

    @override
    def end(self, why: str) -> None:
        pass


@asynccontextmanager
async def _followed(settings: SegmentSettings, reader: LogReader, name: str | None) -> AsyncIterator[list[Partition]]:
    """Yields the partition of the segment `name`, or all, read to their end. Raises `DeliveryError`."""
    kafka, logger = settings.kafka, log.configure(settings.log, "segment")
    tasks: list[asyncio.Task[None]] = []
    try:
        _, _, topic, _ = await describe(kafka, (kafka.segments_topic, kafka.snapshots_topic))
        await reader.start()
        numbers = range(topic.partitions) if name is None else [partition_of(name.encode(), topic.partitions)]
        found = [
            Partition(number, kafka, reader, ServedSessions(new_id), RecentBlocks(0), logger) for number in numbers
        ]
        tasks += [asyncio.create_task(each.follow()) for each in found]
        for each in found:
            try:
                await asyncio.wait_for(each.live.wait(), PATIENCE)
            except TimeoutError:
                problem = each.problem or "no answer"
                raise DeliveryError(f"partition {each.number}: {problem}", DeliveryPolicy.RETRY) from None
        yield found
    except BrokenPipeError:  # `… cat NAME | head`: aiokafka says it otherwise
        raise
    except (KafkaError, OSError) as error:
        raise DeliveryError(f"Kafka: {explain(error)}", DeliveryPolicy.RETRY) from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await reader.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace_segment", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    texts = {
        "ls": "all segments: length, where they begin, writers, state",
        "cat": "a segment's bytes, as they are stored",
        "info": "one segment, and its writers with their levels",
        "seal": "refuse further appends: readers are told the end of the segment",
        "delete": "delete a segment and its writers",
    }
    for verb, text in texts.items():
        made = verbs.add_parser(verb, help=text, description=text)
        made.add_argument("--config", type=Path, help="YAML file with settings; the environment overrides it")
        if verb != "ls":
            made.add_argument("segment")
        if verb == "cat":
            made.add_argument("--offset", type=int, help="the first byte; default: where the segment begins")
        if verb == "delete":
            made.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs the command. Exit status 0: done; 1: it could not be done, with the reason; 78: the settings are wrong."""
    arguments = _parser().parse_args(argv)
    try:
        settings = load(SegmentSettings, arguments.config)
        if arguments.verb == "delete" and not arguments.yes and not _sure(arguments.segment):
            return EXIT_FAILED
        asyncio.run(_run(settings, arguments))
    except ConfigError as error:
        print(f"python -m headrace_segment: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except DeliveryError as error:
        print(f"python -m headrace_segment: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNWRITTEN
    return 0


def _sure(segment: str) -> bool:
    try:
        return input(f"Delete segment {segment} for ever? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print("\npython -m headrace_segment: no answer on standard input; --yes skips the question", file=sys.stderr)
        return False


async def _run(settings: SegmentSettings, arguments: argparse.Namespace) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # `main` says what went wrong
    reader = LogReader(settings.kafka)
    async with _followed(settings, reader, None if arguments.verb == "ls" else arguments.segment) as partitions:
        if arguments.verb == "ls":
            _list(partitions)
            sys.stdout.flush()
            return
        (partition,) = partitions
        name = arguments.segment
        segment = partition.fold.segments.get(name)
        if segment is None:
            raise DeliveryError(f"there is no segment {name}", DeliveryPolicy.REFUSED)
        if arguments.verb == "info":
            _info(name, segment)
        elif arguments.verb == "cat":
            await _cat(reader, partition, name, arguments.offset)
        else:
            await _change(settings, partition, name, arguments.verb)


def _list(partitions: Sequence[Partition]) -> None:
    print(f"{'length':>14} {'begins':>14} {'writers':>8} {'state':<7} {'changed':<20} segment")
    rows = [item for each in partitions for item in each.fold.segments.items()]
    for name, segment in sorted(rows):
        state = "sealed" if segment.sealed else "open"
        print(
            f"{segment.length:>14,} {segment.start:>14,} {len(segment.writers):>8,} {state:<7}"
            f" {_time(segment.modified):<20} {name}"
        )


def _info(name: str, segment: Segment) -> None:
    print(f"segment  {name}")
    print(f"length   {segment.length:,}")
    print(f"begins   {segment.start:,}")
    print(f"sealed   {'yes' if segment.sealed else 'no'}")
    print(f"changed  {_time(segment.modified)}")
    for attribute, value in segment.attributes.items():
        print(f"attribute {attribute.hex()}  {value:,}")
    for writer, known in segment.writers.items():
        print(
            f"writer   {writer.hex()}  level {known.level:,} ({known.numbering.name.lower()}), {_time(known.touched)}"
        )


def _time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _cat(reader: LogReader, partition: Partition, name: str, offset: int | None) -> None:
    segment = partition.fold.segments[name]
    at, end = segment.start if offset is None else offset, segment.length
    if not segment.start <= at <= end:
        raise DeliveryError(f"the segment begins at {segment.start} and ends at {end}", DeliveryPolicy.REFUSED)
    while at < end:
        data = await reader.gather(partition.number, Gathering.of(name, segment, at, min(PIECE, end - at)))
        sys.stdout.buffer.write(data)
        at += len(data)
    sys.stdout.buffer.flush()


async def _change(settings: SegmentSettings, partition: Partition, name: str, verb: str) -> None:
    """Appends the record and waits until it is read back."""
    asker = _Asker()
    change = Seal(b"") if verb == "seal" else Delete(b"")
    record = partition.serving.change(ChangeSegment(0, name, change), asker, 0)
    kafka = settings.kafka
    producer = make_producer(kafka, kafka.batch_bytes)
    try:
        await producer.start()
        value, key = record.encode(), name.encode()
        await producer.send_and_wait(kafka.segments_topic, value, key, partition.number)
    finally:
        await producer.stop()
    try:
        answer = await asyncio.wait_for(asker.answer, PATIENCE)
    except TimeoutError:
        raise DeliveryError("Kafka did not answer in time", DeliveryPolicy.RETRY) from None
    if not isinstance(answer, Changed):
        raise DeliveryError(f"the outcome is unknown: {partition.problem}", DeliveryPolicy.RETRY)
    if answer.why is not None:
        raise DeliveryError(f"there is no segment {name}", DeliveryPolicy.REFUSED)
    print(f"{name}: {'sealed' if verb == 'seal' else 'deleted'}")
