"""The process: wait for the topics, claim or resume, run the query, end when asked, and say why in a line when it must stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, Final, cast

from headrace_common.errors import HeadraceError
from headrace_common.log import Log
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace_lake import gaps
from headrace_lake.causes import chain, kafka_is_away, root_cause
from headrace_lake.checkpoint import Checkpoint, Marker
from headrace_lake.clocks import at_start
from headrace_lake.decode import Topics
from headrace_lake.fence import FIRST_EPOCH, Fence
from headrace_lake.halt import HaltError, KafkaAwayError, StoppingError
from headrace_lake.landing import Landing
from headrace_lake.landing_events import EventsLanding
from headrace_lake.memory import Memory, NoMemory
from headrace_lake.migrate import prepare
from headrace_lake.operations import LakeHealth
from headrace_lake.policy import Policies
from headrace_lake.progress import Way
from headrace_lake.recollection import open_memory
from headrace_lake.settings import LakeProcessSettings, location
from headrace_lake.shape import Shape
from headrace_lake.source import Brokers, Topic, source_options
from headrace_lake.start import Covered, Ends, Position, covered, strays
from headrace_lake.storage import Storage
from headrace_lake.upkeep import Upkeep

_POLL: Final = 0.2  # seconds between two looks at the query
_FENCE_LOOK: Final = 10.0  # seconds between two looks for a newer epoch, beside those of each batch
_RETRY: Final = 2.0  # seconds between two questions for the topics
_ONCE_WAIT: Final = 60.0  # seconds that --once waits for Kafka and the topics


class Job:
    """One run of the landing job on a Spark session. `stop` may be called from any thread and from a signal handler."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeProcessSettings,
        *,
        once: bool,
        log: Log,
        health: LakeHealth,
        accept_loss: bool = False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._once = once
        self._accept_loss = accept_loss
        self._log = log
        self._health = health
        self._stop = threading.Event()
        self._lake = location(settings.lake.path)
        self._checkpoint = Checkpoint(Storage(spark), location(settings.lake.checkpoint))
        self._brokers = Brokers(spark, settings.kafka)

    def stop(self, *_: int | FrameType | None) -> None:
        """Ends the run after the batch that is under way."""
        self._stop.set()

    def run(self) -> None:
        """Lands until stopped, or with `once` until all that is there now has landed.

        Raises `ConfigError` and `HaltError` (the message says why and what to do). While Kafka is away it waits.
        """
        try:
            while not self._stop.is_set():
                topics = self._await_topics()
                if topics is None:
                    break
                try:
                    self._land(topics)
                except KafkaAwayError as error:
                    if self._once:
                        raise HaltError(str(error)) from error
                    self._log.warning("lost Kafka, waiting for it", reason=str(error))
                    continue
                break
        finally:
            self._health.waits("stopping")
            self._brokers.close()

    def _await_topics(self) -> dict[str, Topic] | None:
        """Both topics as soon as they exist; None when asked to stop. One line says what is waited for."""
        names = (self._settings.kafka.events_topic, self._settings.kafka.quarantine_topic)
        said = ""
        deadline = time.monotonic() + _ONCE_WAIT
        while not self._stop.is_set():
            self._health.turn()
            try:
                found = self._brokers.topics(names)
                missing = [name for name in names if name not in found]
                if not missing:
                    return found
                lacks = f"there is no topic {' and no topic '.join(missing)}"
            except KafkaAwayError:
                lacks = f"Kafka at {self._settings.kafka.bootstrap_servers} does not answer"
            if self._once and time.monotonic() > deadline:
                raise HaltError(lacks)
            if lacks != said:
                self._log.warning("waiting", reason=lacks)
                said = lacks
            self._health.waits(lacks)
            self._stop.wait(_RETRY)
        return None

    def _land(self, topics: Mapping[str, Topic]) -> None:
        memory = open_memory(self._spark, self._settings.lake, topics[self._settings.kafka.events_topic].id, self._log)
        try:
            self._land_with(memory, topics)
        finally:
            memory.close()

    def _land_with(self, memory: Memory, topics: Mapping[str, Topic]) -> None:
        shape = prepare(Storage(self._spark), self._settings.lake)
        fence = Fence(self._spark, self._lake)
        epoch, found = self._begin(fence, topics)
        kafka = self._settings.kafka
        known = Topics(kafka.events_topic, kafka.quarantine_topic, {name: topic.id for name, topic in topics.items()})
        events = self._events_landing(memory, known, fence, found, topics, shape)
        self._health.waits("reading the ids of what landed lately")
        self._wait_for(events.recall)
        upkeep = Upkeep(
            self._spark,
            self._settings,
            epoch=epoch,
            landed_before=found.landed,
            way=self._way(found, topics) if self._once else None,
            health=self._health,
            log=self._log,
            stopping=self._stop.is_set,
        )
        landing = Landing(
            self._spark,
            self._lake,
            epoch=epoch,
            fence=fence,
            checkpoint=self._checkpoint,
            brokers=self._brokers,
            topics=known,
            position=found,
            policies=Policies.of(self._settings.lake.quarantine),
            events=events,
            log=self._log,
            stopping=self._stop.is_set,
            done=upkeep.landed,
            alone=upkeep.landing,
            between=upkeep.between,
        )
        options = source_options(kafka, found.starting(topics), self._settings.lake.batch_records)
        records = self._spark.readStream.format("kafka").options(**options).load()
        writer = (
            records.writeStream.foreachBatch(landing)
            .queryName("headrace")
            .option("checkpointLocation", self._checkpoint.path)
        )
        trigger = self._settings.lake.trigger
        writer = (
            writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=f"{trigger} seconds")
        )
        self._log.info("landing", epoch=epoch, lake=self._lake, checkpoint=self._checkpoint.path)
        self._health.tell(lake=self._lake, epoch=epoch)
        try:
            with upkeep:
                query = writer.start()
                self._health.waits("")
                self._watch(query, Fence(self._spark, self._lake), epoch, upkeep)
        except (PySparkException, Py4JJavaError) as error:
            self._explain(error, landing.failure, topics)

    def _wait_for(self, work: Callable[[], None]) -> None:
        """Does what takes minutes on large tables, and lives meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work)
            while wait([done], timeout=1).not_done:
                self._health.turn()
            done.result()

    def _events_landing(
        self, memory: Memory, known: Topics, fence: Fence, found: Position, topics: Mapping[str, Topic], shape: Shape
    ) -> EventsLanding:
        kafka = self._settings.kafka
        clocks = None
        if not isinstance(memory, NoMemory):
            pairs = [(known.events, number) for number in range(topics[known.events].partitions)]
            first = self._brokers.offsets(pairs, earliest=True)
            following = {pair[1]: max(found.landed.get(pair, start), start) for pair, start in first.items()}
            clocks = at_start(self._spark, self._brokers, kafka, following)
        return EventsLanding(
            self._spark,
            self._lake,
            topics=known,
            fence=fence,
            position=found,
            memory=memory,
            shape=shape,
            clocks=clocks,
            horizon=self._settings.lake.horizon,
            slack=kafka.ack_deadline,
            log=self._log,
        )

    def _begin(self, fence: Fence, topics: Mapping[str, Topic]) -> tuple[int, Position]:
        """The epoch of the checkpoint, or a new one that is claimed before anything is read; and how far the tables are."""
        marker = self._checkpoint.marker()
        if marker is not None:
            self._still_ours(marker, fence, topics)
        ids = {name: topic.id for name, topic in topics.items()}
        known = ids if marker is None else marker.topics
        there = self._covered(topics)
        losses = gaps.find(there, self._brokers, topics, known)
        if losses and not self._accept_loss:
            raise gaps.refuse(losses)
        if marker is not None and not losses:
            left = {(topic, int(n)): end for topic, ends in marker.strays.items() for n, end in ends.items()}
            return marker.epoch, Position(there.ends, left)
        if marker is not None:  # Spark would go on in the gap
            self._checkpoint.void()
            self._checkpoint.marker()
        epoch = fence.claim(lambda epoch: self._accepted(topics, known, epoch))
        ends: Ends = {}
        left = {}
        if epoch > FIRST_EPOCH:  # else the tables were empty when they were claimed
            ends = self._covered(topics).ends
            left = strays(self._spark, self._lake, ends, topics)
        by_topic = {name: {str(n): end for (topic, n), end in left.items() if topic == name} for name in topics}
        self._checkpoint.mark(Marker(epoch, fence.lake_id(), ids, by_topic))
        self._log.info("claimed the tables", epoch=epoch)
        return epoch, Position(ends, left)

    def _covered(self, topics: Mapping[str, Topic]) -> Covered:
        return covered(self._spark, self._lake, topics)

    def _losses(self, topics: Mapping[str, Topic], known: Mapping[str, str]) -> list[gaps.Loss]:
        return gaps.find(self._covered(topics), self._brokers, topics, known)

    def _accepted(self, topics: Mapping[str, Topic], known: Mapping[str, str], epoch: int) -> DataFrame | None:
        """Rows for the table of gaps, at a time when nobody else can land any more."""
        losses = self._losses(topics, known)
        if not losses:
            return None
        if not self._accept_loss:
            raise gaps.refuse(losses)
        for loss in losses:
            self._log.warning("accepts a loss", lost=str(loss), reason=str(loss.reason))
        return gaps.rows(self._spark, self._lake, losses, epoch)

    def _still_ours(self, marker: Marker, fence: Fence, topics: Mapping[str, Topic]) -> None:
        """Raises `HaltError` when the checkpoint that `marker` is in must not be used on."""
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

    def _watch(self, query: StreamingQuery, fence: Fence, epoch: int, upkeep: Upkeep) -> None:
        """Returns when the query has ended; raises what ended it. An idle job notices here that it was superseded."""
        look = 0.0
        try:
            while not query.awaitTermination(cast("Any", _POLL)):
                self._health.turn()
                idle = not query.status["isTriggerActive"]
                # Between two batches it may be ended at once; inside one, the next batch will see that it must not begin.
                if self._stop.is_set() and idle:
                    return
                if time.monotonic() > look:
                    fence.check_epoch(epoch)
                    look = time.monotonic() + _FENCE_LOOK
                upkeep.turn(idle=idle and not self._once)
            upkeep.turn(idle=True)
        finally:
            if query.isActive:
                self._health.waits("stopping")
                query.stop()

    def _way(self, found: Position, topics: Mapping[str, Topic]) -> Way:
        """What a run that ends has before it."""
        partitions = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
        starts = self._brokers.offsets(partitions, earliest=True) | found.landed
        return Way(starts, self._brokers.offsets(partitions, earliest=False))

    def _explain(
        self, error: PySparkException | Py4JJavaError, failure: BaseException | None, topics: Mapping[str, Topic]
    ) -> None:
        """Raises what `error` means; returns when it means that the job was stopped."""
        self._log.debug("the query ended", exc_info=error)
        if isinstance(failure, StoppingError):
            return
        if isinstance(failure, HeadraceError):
            raise failure
        causes = " | ".join(chain(failure or error))
        if "CONCURRENT_STREAM_LOG_UPDATE" in causes or "Concurrent update to the" in causes:
            raise HaltError("another job runs with this checkpoint: this one stops") from error
        if kafka_is_away(causes):
            raise KafkaAwayError(root_cause(failure or error)) from error
        # Spark words this in several ways, and names no range
        losses = self._losses(topics, {name: topic.id for name, topic in topics.items()})
        if losses:
            raise gaps.refuse(losses) from error
        raise HaltError(root_cause(failure or error)) from error
