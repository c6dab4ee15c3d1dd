"""Fills the topics with all cases of the promise, and records what was sent, with its place in Kafka.

Half of the partitions lag the others by hours (in Kafka's timestamps). Kinds of records:

first    a new event
resend   the same event again, minutes later at most: it must not land
far      the same event again in a partition hours ahead, so beyond the horizon: it must land
unique   an event with a `u.` id
spoofed  an event with the same client-chosen `_id` as another one, but other content: it must land
bad      a record that is not an event: it must be in quarantine
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from aiokafka import AIOKafkaProducer
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import QUARANTINE_HEADERS
from headrace_common.record.event import deterministic_id, unique_id

from benchmarks.records import Sent, headers, producing, send

BLOCK: Final = 500
BEHIND: Final = 3 * 3600.0
"""Seconds by which the first half of the partitions lags the others."""

SPREAD: Final = 2400.0
"""Seconds from the first to the last timestamp of a partition: within the horizon's default."""

_RECENT: Final = 20_000
"""How many recent events may be sent again."""


@dataclass(frozen=True)
class Record:
    """One record of the events topic, before it has a place."""

    kind: str
    event_id: bytes
    value: bytes
    time_ms: int


class Traffic:
    """`events` records over `partitions`; the same `seed` gives the same ones, except unique ids. One in 100 is a resend."""

    def __init__(self, events: int, partitions: int, seed: int = 11) -> None:
        self._events = events
        self._partitions = partitions
        self._random = random.Random(seed)
        self._began = time.time() - SPREAD
        self._recent: dict[bool, deque[tuple[bytes, bytes]]] = {late: deque(maxlen=_RECENT) for late in (True, False)}

    def blocks(self) -> Iterator[tuple[int, list[Record]]]:
        """(partition, records), until all events are made."""
        for block, start in enumerate(range(0, self._events, BLOCK)):
            partition = block % self._partitions
            late = partition < self._partitions // 2
            yield partition, [self._record(n, late) for n in range(start, min(start + BLOCK, self._events))]

    def _record(self, number: int, late: bool) -> Record:
        moment = self._began + SPREAD * number / self._events - (BEHIND if late else 0)
        kind, event_id, value = self._content(number, late)
        if kind == "first":
            self._recent[late].append((event_id, value))
        return Record(kind, event_id, value, int(moment * 1000))

    def _content(self, number: int, late: bool) -> tuple[str, bytes, bytes]:
        if number % 100 == 50 and self._recent[late]:
            return "resend", *self._random.choice(self._recent[late])
        if number % 20_011 == 20_010 and not late and self._recent[True]:
            event_id, value = self._recent[True].popleft()  # once only
            return "far", event_id, value
        body = {"number": number, "text": self._random.choice(_TEXTS), "status": self._random.choice((200, 404, 500))}
        value = json.dumps(body).encode()
        if number % 997 == 5:
            return "bad", b"", value
        if number % 10_007 == 9:
            chosen = (b"order-%d" % (number // 20_014), b"2026-01-01T00:00:00.000Z", b"message %d" % number)
            return "spoofed", deterministic_id("lumberjack", *chosen), value
        if number % 10 == 3:
            return "unique", unique_id(), value
        return "first", deterministic_id("forward", b"%d" % number, value), value


_WORDS: Final = ("all", "the", "king's", "horses", "and", "men", "could", "not", "put", "it", "together", "again")
_TEXTS: Final = [" ".join(random.Random(seed).choices(_WORDS, k=20)) for seed in range(500)]


async def fill(kafka: KafkaSettings, traffic: Traffic, sent: Path, rejects: int) -> dict[str, int]:
    """Sends `traffic`, and `rejects` quarantine records; writes ``partition,offset,id,md5,kind`` lines to `sent`.

    Returns how many records of each kind it sent. Each request holds the records of one block.
    """
    counts: dict[str, int] = {}
    async with producing(kafka) as producer:
        with sent.open("w") as lines:
            for partition, records in traffic.blocks():
                await _send(producer, kafka.events_topic, partition, records, lines)
                for record in records:
                    counts[record.kind] = counts.get(record.kind, 0) + 1
        for number in range(rejects):
            values = (b"bad_json", b"x", b"forward", b"/forward/h", b"-", b"u." + b"0" * 32, b"1/1", b"00", b"{}")
            about = list(zip(QUARANTINE_HEADERS, values, strict=True))
            await producer.send(kafka.quarantine_topic, b"%d \xff" % number, partition=number % 3, headers=about)
        await producer.flush()
    return {**counts, "reject": rejects}


async def _send(producer: AIOKafkaProducer, topic: str, partition: int, records: list[Record], lines: IO[str]) -> None:
    made = []
    for index, record in enumerate(records):
        about = headers(record.event_id, index, index, record.time_ms)
        if record.kind == "bad":
            del about[1]
        made.append(Sent(record.time_ms, record.value, about))
    first = await send(producer, topic, partition, made)
    for offset, record in enumerate(records, first):
        digest = hashlib.md5(record.value, usedforsecurity=False).hexdigest()
        lines.write(f"{partition},{offset},{record.event_id.decode()},{digest},{record.kind}\n")
