"""The process: waits for the topics, claims the tables, runs the query, and says in one line why it stops."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final, cast

from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.log import Log
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.dedup.choose import open_index
from headrace_lake.dedup.index import DedupIndex
from headrace_lake.kafka import unlanded
from headrace_lake.kafka.checkpoint import of_epoch, ranges
from headrace_lake.kafka.claim import Claim
from headrace_lake.kafka.source import Brokers, TopicInfo, delay_options, source_options
from headrace_lake.kafka.start import Position
from headrace_lake.landing.landing import Epoch, Landing
from headrace_lake.landing.on_spark import OnSpark
from headrace_lake.rows.decode import Topics, decoded
from headrace_lake.spark.causes import chain, kafka_is_away, no_time, root_cause
from headrace_lake.spark.halt import HaltError, KafkaAwayError, PartitionsAddedError, StoppingError
from headrace_lake.tables import layout
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.on_spark import Tables
from headrace_lake.upkeep.operations import LakeHealth
from headrace_lake.upkeep.upkeep import Upkeep

_POLL: Final = 1.0  # seconds between two checks of a query: each costs Python and the JVM
_FENCE_LOOK: Final = 10.0  # seconds between two checks for a newer epoch; each batch checks too
_STOP_WAIT: Final = 15.0  # seconds that a stop waits for the batch under way: while Kafka is away one takes minutes
_RETRY: Final = 2.0  # seconds between two requests for the topics
_ONCE_WAIT: Final = 60.0  # seconds that --once waits for Kafka and the topics


class Job:
    """One run of the landing job on a Spark session. Any thread, and a signal handler, may call `stop`."""

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
        self._log = log
        self._health = health
        self._stop = threading.Event()
        self._lake = location(settings.lake.path)
        self._brokers = Brokers(spark, settings.kafka)
        self._tables = Tables(spark, self._lake)
        self._claim = Claim(self._tables, self._brokers, accept_loss=accept_loss, log=log)

    def stop(self, *_: int | FrameType | None) -> None:
        """Ends the run after the current batch, or in the midst of it if it does not end soon: the next run lands it then."""
        self._stop.set()

    def run(self) -> None:
        """Lands until stopped; with `once`, until it has landed what Kafka holds now. Waits while Kafka is away.

        Raises `ConfigError` and `HaltError`; the message says why, and what to do.
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
                except PartitionsAddedError as error:
                    self._log.info("claims the tables again", reason=str(error))
                    continue
                break
        finally:
            self._health.set_waiting("stopping")
            self._brokers.close()

    def _await_topics(self) -> dict[str, TopicInfo] | None:
        """Returns both topics, as soon as they exist; None if asked to stop. Logs once what the job waits for."""
        names = (self._settings.kafka.events_topic, self._settings.kafka.quarantine_topic)
        said = ""
        deadline = time.monotonic() + _ONCE_WAIT
        while not self._stop.is_set():
            self._health.heartbeat()
            try:
                found = self._brokers.topics(names)
                missing = [name for name in names if name not in found]
                if not missing:
                    return found
                lacks = f"there is no topic {' and no topic '.join(missing)}"
            except KafkaAwayError as error:
                lacks = str(error)
            if self._once and time.monotonic() > deadline:
                raise HaltError(lacks)
            if lacks != said:
                self._log.warning("waiting", reason=lacks)
                said = lacks
            self._health.set_waiting(lacks)
            self._stop.wait(_RETRY)
        return None

    def _land(self, topics: Mapping[str, TopicInfo]) -> None:
        index = open_index(self._spark, self._settings.lake, topics[self._settings.kafka.events_topic].id, self._log)
        try:
            self._land_with(index, topics)
        except (PySparkException, Py4JJavaError) as error:  # before the first batch
            if kafka_is_away(" | ".join(chain(error))):
                raise KafkaAwayError(root_cause(error)) from error
            raise HaltError(_reason(error)) from error
        finally:
            if index is not None:
                index.close()

    def _land_with(self, index: DedupIndex | None, topics: Mapping[str, TopicInfo]) -> None:
        self._health.set_waiting("claiming the tables")
        fence = Fence(self._tables)
        fence.epoch()  # raises for an unreadable log, with the remedy, before Delta does
        layout.create(self._tables.storage, self._lake)
        epoch, found = self._claim.begin(fence, topics)
        if found.landed_at is not None:
            self._health.metrics.last_landed.set(found.landed_at / 1000)
        checkpoint = of_epoch(self._tables.storage, location(self._settings.lake.checkpoint), epoch)
        kafka = self._settings.kafka
        known = Topics(kafka.events_topic, kafka.quarantine_topic, {name: topic.id for name, topic in topics.items()})
        this = Epoch(epoch, known, fence, found, self._log)
        execution = OnSpark(self._tables, fence, known, index=index, horizon=self._settings.lake.horizon)
        if index is not None:
            self._health.set_waiting("reading the ids of what landed lately")
            began = time.monotonic()
            index.add_landed(self._ids_since(found, topics))
            seconds = round(time.monotonic() - began, 2)
            self._log.info("remembers what landed", ids=index.state().ids, seconds=seconds)
        upkeep = Upkeep(
            self._tables,
            self._settings,
            epoch=epoch,
            landed_before=found.landed,
            brokers=self._brokers,
            health=self._health,
            log=self._log,
            stopping=self._stop.is_set,
        )
        landing = Landing(
            this,
            ranges=partial(ranges, self._tables.storage, checkpoint),
            brokers=self._brokers,
            execution=execution,
            stopping=self._stop.is_set,
            on_landed=upkeep.landed,
        )
        lake = self._settings.lake
        options = source_options(kafka, found.starting(topics), lake.batch_records)
        if not self._once:  # it would end before the last records
            options |= delay_options(lake.delay, min(lake.least_records, lake.batch_records))
        records = decoded(self._spark.readStream.format("kafka").options(**options).load())
        when: Any = {"availableNow": True} if self._once else {"processingTime": f"{lake.trigger} seconds"}
        writer = records.writeStream.foreachBatch(landing).queryName("headrace").trigger(**when)
        writer = writer.option("checkpointLocation", checkpoint)
        self._log.info("landing", epoch=epoch, lake=self._lake, checkpoint=checkpoint)
        try:
            with upkeep:
                query = writer.start()
                self._health.set_waiting("")
                self._watch(query, Fence(self._tables), epoch, upkeep)
        except (PySparkException, Py4JJavaError) as error:
            self._explain(error, landing.failure, epoch, topics)

    def _ids_since(self, found: Position, topics: Mapping[str, TopicInfo]) -> int:
        kafka = self._settings.kafka
        pairs = [(kafka.events_topic, number) for number in range(topics[kafka.events_topic].partitions)]
        reach = self._settings.lake.horizon + kafka.ack_deadline
        asked = partial(unlanded.first_times, self._spark, kafka)
        oldest = unlanded.oldest_to_come(self._brokers, pairs, found.landed, self._tables.newest_event(), asked)
        return oldest - round(reach * 1000)

    def _watch(self, query: StreamingQuery, fence: Fence, epoch: int, upkeep: Upkeep) -> None:
        """Returns when the query has ended, or raises its error. Here an idle job notices that another has taken over."""
        look, stop_by = 0.0, math.inf
        try:
            while not query.awaitTermination(cast("Any", _POLL)):
                self._health.heartbeat()
                # Between batches the query may end at once. During a batch, the next batch sees that it must not begin.
                if self._stop.is_set():
                    stop_by = min(stop_by, time.monotonic() + _STOP_WAIT)
                    if time.monotonic() >= stop_by or not query.status["isTriggerActive"]:
                        return
                if time.monotonic() > look:
                    fence.check_epoch(epoch)
                    look = time.monotonic() + _FENCE_LOOK
                upkeep.run_due()
            upkeep.finish()
        finally:
            if query.isActive:
                self._health.set_waiting("stopping")
                with suppress(Py4JJavaError):  # it has not ended in time; spark.sql.streaming.stopTimeout bounds this
                    query.stop()

    def _explain(
        self,
        error: PySparkException | Py4JJavaError,
        failure: BaseException | None,
        epoch: int,
        topics: Mapping[str, TopicInfo],
    ) -> None:
        """Raises what `error` means; returns if it means that the job was asked to stop."""
        self._log.debug("query ended", exc_info=error)
        if isinstance(failure, StoppingError):
            return
        Fence(self._tables).check_epoch(epoch)  # a newer job has deleted this one's checkpoint
        if isinstance(failure, HeadraceError):
            raise failure
        if kafka_is_away(" | ".join(chain(failure or error))):
            raise KafkaAwayError(root_cause(failure or error)) from error
        # Spark reports lost offsets in several wordings, and names no range
        self._claim.check_losses(topics)
        raise HaltError(_reason(failure or error)) from error


def _reason(error: BaseException) -> str:
    return no_time(" | ".join(chain(error))) or root_cause(error)
