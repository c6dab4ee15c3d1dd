"""Keeps one partition small while this process owns it: the log's head, silent writers, bytes older than the retention."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import client_arguments, explain
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.replica.partition import Partition
from headrace_segment.settings import SegmentSection
from headrace_segment.store.records import Truncate

LOOK: Final = 10.0
"""Seconds between two looks at a partition."""

CUT_LOOK: Final = 60.0
"""Seconds between two tries to cut the log."""

WRITER_LOOKS: Final = 20
"""Looks for idle writers within their retention."""

MOST: Final = 2000
"""Truncations that one look appends. Hundreds of thousands may be due at once: those of a day are due in one moment."""


class PartitionUpkeep:
    """The upkeep of one partition. `now_ms`: Unix time."""

    def __init__(
        self,
        partition: Partition,
        kafka: KafkaSettings,
        settings: SegmentSection,
        now_ms: Callable[[], int],
        log: Log,
    ) -> None:
        self._partition = partition
        self._kafka = kafka
        self._settings = settings
        self._now_ms = now_ms
        self._log = log
        self._writers_due = 0
        self._cut_at = 0
        self._cut_due = 0.0

    async def run(self) -> None:
        """Looks again and again until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            if not self._partition.live.is_set():
                continue
            self.look()
            try:
                await self.cut()
            except (KafkaError, OSError) as error:
                self._log.warning("log not cut", partition=self._partition.number, problem=explain(error))

    def look(self) -> None:
        """Does what is due now."""
        self._writers()
        if not self._partition.appending:  # else what was due before may wait still
            for name, record in itertools.islice(self._due(), MOST):
                self._partition.put(name, record)

    def _due(self) -> Iterator[tuple[str, Truncate]]:
        """Yields what is older than the retention: whole blocks at the beginning of segments.

        What is too old is so by the log's time, too: our clock alone could be wrong, and removed bytes are lost.
        """
        fold, kept_ms = self._partition.fold, int(self._settings.retention_time * 1000)
        before = min(self._now_ms(), fold.log_time) - kept_ms
        for name, segment in fold.segments.items() if kept_ms else ():
            due = segment.length if segment.modified < before else segment.index.older(before)
            if due > segment.start:
                yield name, Truncate(due)

    async def cut(self) -> None:
        """Removes records that no start and no reader needs any more, after each checkpoint. Raises `KafkaError`."""
        partition, start = self._partition, self._partition.start
        if start == self._cut_at or time.monotonic() < self._cut_due:
            return
        self._cut_due = time.monotonic() + CUT_LOOK
        if (until := min(start, partition.fold.needed_from())) > 0:
            admin = AIOKafkaAdminClient(**client_arguments(self._kafka))
            try:
                await admin.start()
                where = TopicPartition(self._kafka.segments_topic, partition.number)
                await admin.delete_records({where: RecordsToDelete(before_offset=until)})
            finally:
                await admin.close()
        self._cut_at = start

    def _writers(self) -> None:
        """Forgets writers that have stored nothing for too long, by our clock and by the log's: one alone could be wrong."""
        fold, kept = self._partition.fold, int(self._settings.writer_retention * 1000)
        now = self._now_ms()
        if now < self._writers_due <= now + kept // WRITER_LOOKS:  # later: the clock was ahead
            return
        self._writers_due = now + kept // WRITER_LOOKS
        before = min(now, fold.log_time) - kept
        for name, segment in fold.segments.items():
            for writer in [writer for writer, state in segment.writers.items() if state.touched < before]:
                if not self._partition.appending.holds(name, writer):
                    del segment.writers[writer]
