"""The claim of the tables: their checkpoint, where they end, their losses; and the epoch under which a job lands."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_common.operations.log import Log
from pyspark.sql import DataFrame, SparkSession

from headrace_lake.kafka import gaps
from headrace_lake.kafka.checkpoint import Checkpoint, CheckpointMarker
from headrace_lake.kafka.source import Brokers, TopicInfo
from headrace_lake.kafka.start import RESTORE, Coverage, Position, coverage, first_few, note_strays
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.fence import Fence, transaction
from headrace_lake.tables.layout import BATCHES
from headrace_lake.tables.properties import RETAINED_FROM


class Claim:
    """Continues the checkpoint's epoch, or claims a new one. Everything here blocks on storage and Kafka."""

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        checkpoint: Checkpoint,
        brokers: Brokers,
        *,
        accept_loss: bool,
        log: Log,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._accept_loss = accept_loss
        self._log = log

    def begin(self, fence: Fence, topics: Mapping[str, TopicInfo]) -> tuple[int, Position]:
        """Returns the checkpoint's epoch, or a new one, claimed before anything is read; and how far the tables are."""
        marker = self._checkpoint.marker()
        if marker is not None:
            self._check_checkpoint(marker, fence, topics)
        ids = {name: topic.id for name, topic in topics.items()}
        known = {} if marker is None else marker.topics
        latest = fence.latest(BATCHES)  # before the tables are read: what lands meanwhile is noticed then
        there = self._coverage(topics, fence)
        there.check()
        self._check_tables(fence, there)
        if marker is not None:
            self._check_end(marker, fence, there, topics)
        losses = gaps.find(there, self._brokers, topics, known, fence)
        if losses and not self._accept_loss:
            raise gaps.refuse(losses)
        if marker is not None and not losses:
            left = {(topic, int(n)): end for topic, ends in marker.strays.items() for n, end in ends.items()}
            return marker.epoch, Position(there.ends, left, there.rows, latest, there.landed_at)
        if marker is not None:  # Spark would continue inside the gap
            self._checkpoint.void()
            self._checkpoint.marker()
        position = Position({}, {})
        epoch = fence.claim(lambda epoch: self._settle(fence, topics, known, epoch, position))
        left = position.strays
        by_topic = {name: {str(n): end for (topic, n), end in left.items() if topic == name} for name in topics}
        self._checkpoint.mark(CheckpointMarker(epoch, fence.lake_id(), ids, by_topic))
        self._log.info("claimed the tables", epoch=epoch)
        return epoch, position

    def _coverage(self, topics: Mapping[str, TopicInfo], fence: Fence) -> Coverage:
        return coverage(self._spark, self._lake, topics, gaps.begun(fence))

    def losses(self, topics: Mapping[str, TopicInfo], known: Mapping[str, str]) -> list[gaps.Loss]:
        """Returns the records that Kafka lost before they were landed or given up; `known`: topic -> the id that it had."""
        fence = Fence(self._spark, self._lake)
        return gaps.find(self._coverage(topics, fence), self._brokers, topics, known, fence)

    def _settle(
        self, fence: Fence, topics: Mapping[str, TopicInfo], known: Mapping[str, str], epoch: int, position: Position
    ) -> DataFrame | None:
        """Sees where the tables end, fills `position`, and returns rows for the table of gaps.

        Called when no other job can land any more. It asks the rows also for the first epoch: they may be copies of others.
        """
        position.transaction = fence.latest(BATCHES)
        there = self._coverage(topics, fence)
        there.check()
        losses = gaps.find(there, self._brokers, topics, known, fence)
        gaps.note_begun(self._spark, self._lake, there, self._brokers, topics, known, fence)
        lost = {
            (loss.topic, loss.partition): loss.end
            for loss in losses
            if loss.end is not None and loss.partition is not None
        }
        position.landed = there.ends | lost
        position.rows, position.landed_at = there.rows, there.landed_at
        position.strays = note_strays(self._spark, fence, self._lake, topics, epoch, there.ends)
        if not losses:
            return None
        if not self._accept_loss:
            raise gaps.refuse(losses)
        for loss in losses:
            self._log.warning("accepts a loss", lost=str(loss), reason=str(loss.reason))
        return gaps.rows(self._spark, self._lake, losses, epoch)

    def _check_checkpoint(self, marker: CheckpointMarker, fence: Fence, topics: Mapping[str, TopicInfo]) -> None:
        """Raises `HaltError` if this job must not continue the checkpoint of `marker`."""
        over = f"delete the checkpoint {self._checkpoint.path} to take over from where the tables end"
        if marker.lake != fence.lake_id():
            raise HaltError(f"the checkpoint belongs to other tables than those in {self._lake}: {over}")
        if set(marker.topics) != set(topics):
            raise HaltError(f"the checkpoint is for the topics {' and '.join(sorted(marker.topics))}: {over}")
        latest = fence.epoch()
        if marker.epoch != latest:
            raise HaltError(
                f"another job has taken over: the checkpoint holds epoch {marker.epoch}, the tables are at epoch {latest}; "
                f"stop that job and {over}"
            )
        fence.check_batch(marker.epoch, self._checkpoint.last_batch())

    def _check_end(
        self, marker: CheckpointMarker, fence: Fence, there: Coverage, topics: Mapping[str, TopicInfo]
    ) -> None:
        """Raises `HaltError` unless `batches` ends where the checkpoint says that it does.

        A topic that was recreated since is another matter: see `gaps`.
        """
        last = self._checkpoint.last_batch()
        if last < 0:
            return
        if not self._checkpoint.committed(last) and not fence.written(BATCHES, transaction(marker.epoch, last)):
            last -= 1  # it was killed before its last write
        begins = self._checkpoint.ends(-1)
        wrong = [
            f"{topic}/{number}: {BATCHES} ends at {there.ends.get((topic, number), 'nothing')}, the checkpoint at {end}"
            for (topic, number), end in sorted(self._checkpoint.ends(last).items())
            if marker.topics[topic] == topics[topic].id
            and there.ends.get((topic, number), begins.get((topic, number), 0)) != end
        ]
        if wrong:
            raise HaltError(
                f"the table {BATCHES} does not end where the checkpoint does: {first_few(wrong)}. Rows of it were deleted, or it"
                f" was restored to an older version. {RESTORE}; or delete the checkpoint {self._checkpoint.path}: the job"
                " then begins where the table ends, and leaves out the rows that are there"
            )

    def _check_tables(self, fence: Fence, there: Coverage) -> None:
        """Raises `HaltError` if a table is empty that cannot be: it was dropped and made again."""
        for name, rows in there.written.items():
            if not rows or not fence.never_claimed(name) or RETAINED_FROM in fence.properties(name):
                continue
            if self._spark.read.format("delta").load(f"{self._lake}/{name}").isEmpty():
                raise HaltError(
                    f"the table {name} is empty, and {rows} rows of it were landed: somebody dropped it. Put it back from a"
                    " backup and start again; without one, `python -m headrace_lake replay` lands again what Kafka still holds"
                )
