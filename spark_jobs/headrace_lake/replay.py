"""Replay: lands again what the tables lack of ranges that were landed before, and leaves alone what they have.

Not a stream: bounded reads of what rows of `batches` cover, a few of them in a step. A record whose (topic_id, partition,
offset) is in a table is never touched. What is missing is landed as a batch would land it today: a row that was deleted comes
back, a record that a policy left out lands if the policy has changed. What was left out as a resend stays left out as long
as a copy of it is there. Then the step's rows of `batches` get the new counts, where these differ, in one commit.

A replay claims an epoch, so a running job stops; each step is exact once it has ended, and a replay that was killed is run
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace_common.event import DETERMINISTIC, Attribute
from headrace_common.log import Log
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import decode, tables
from headrace_lake.causes import root_cause
from headrace_lake.checkpoint import Checkpoint, Range
from headrace_lake.decode import FAULT, Topics, quoted
from headrace_lake.fence import Fence, transaction
from headrace_lake.halt import HaltError, KafkaAwayError
from headrace_lake.migrate import prepare
from headrace_lake.policy import Policies
from headrace_lake.properties import RETAINED_FROM
from headrace_lake.quarantine import Quarantine
from headrace_lake.replay_plan import Absent, Piece, Wanted, condition, merged, steps
from headrace_lake.settings import LakeProcessSettings, location
from headrace_lake.shape import Shape
from headrace_lake.source import Brokers, Topic, TopicPartition, range_options
from headrace_lake.start import rows_in
from headrace_lake.storage import Storage
from headrace_lake.tables import BATCHES, EVENTS, QUARANTINE, SCHEMAS

_KEY: Final = ("topic_id", "partition", "offset")
_PAGE: Final = 5_000  # rows of `batches` in the driver at once
_ATTEMPTS: Final = 5  # of a step whose records Kafka deletes meanwhile
_GONE: Final = "Kafka no longer holds it"
_PARTLY: Final = "Kafka holds a part only, and what was left out on purpose cannot be told from what is missing"
_DROPPED: Final = "the tables keep nothing of that day: LAKE__RETENTION_DAYS"
_ANEW: Final = "the topic was made anew"


@dataclass(frozen=True)
class Replayed:
    """What a replay, or a step of it, came to."""

    offsets: int = 0
    events: int = 0
    quarantined: int = 0
    corrected: int = 0  # rows of `batches` with new counts

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            self.offsets + other.offsets,
            self.events + other.events,
            self.quarantined + other.quarantined,
            self.corrected + other.corrected,
        )


class Replay:
    """One replay. `stopping` is asked before each step."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeProcessSettings,
        wanted: Wanted,
        *,
        dry_run: bool,
        log: Log,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._wanted = wanted
        self._dry_run = dry_run
        self._log = log
        self._stopping = stopping
        self._lake = location(settings.lake.path)
        self._storage = Storage(spark)
        self._brokers = Brokers(spark, settings.kafka)
        self._fence = Fence(spark, self._lake)
        self._absent = Absent()
        self._epoch = 0
        self._shape = Shape()

    def run(self) -> Replayed:
        """Replays, says what it did in one line for each step and at the end, and returns the sum.

        Raises `HaltError`: no tables, no topics, Kafka away, another job took over. What a step has landed stays.
        """
        kafka = self._settings.kafka
        try:
            if not self._storage.exists(f"{self._lake}/{BATCHES}/_delta_log"):
                raise HaltError(f"there are no tables in {self._lake}: nothing was landed that could be replayed")
            names = (kafka.events_topic, kafka.quarantine_topic)
            topics = self._brokers.topics(names)
            if missing := [name for name in names if name not in topics]:
                raise HaltError(f"there is no topic {' and no topic '.join(missing)}")
            self._check_places(topics)
            if not self._dry_run:
                self._claim()
            return self._replay(topics)
        except KafkaAwayError as error:
            raise HaltError(str(error)) from error
        finally:
            self._brokers.close()

    def _check_places(self, topics: Mapping[str, Topic]) -> None:
        for topic, number in {**(self._wanted.starts or {}), **(self._wanted.ends or {})}:
            if topic not in topics:
                raise HaltError(f"there is no topic {topic} to replay; there is: {', '.join(topics)}")
            if not 0 <= number < topics[topic].partitions:
                raise HaltError(f"{topic} has no partition {number}: it has {topics[topic].partitions}")

    def _claim(self) -> None:
        """Shuts every job out. Its checkpoint goes first: if we are killed in between, the next job claims by itself."""
        self._shape = prepare(self._storage, self._settings.lake)
        checkpoint = Checkpoint(self._storage, location(self._settings.lake.checkpoint))
        try:
            marker = checkpoint.marker()
        except HaltError:
            marker = None  # not ours: it stays as it is
        if marker is not None and marker.lake == self._fence.lake_id():
            checkpoint.void()
        self._epoch = self._fence.claim()
        self._log.info("claimed the tables", epoch=self._epoch)

    def _replay(self, topics: Mapping[str, Topic]) -> Replayed:
        kafka = self._settings.kafka
        ids = {name: topic.id for name, topic in topics.items()}
        self._topics = Topics(kafka.events_topic, kafka.quarantine_topic, ids)
        self._quarantine = Quarantine(
            self._spark, self._lake, topics=self._topics, policies=Policies.of(self._settings.lake.quarantine)
        )
        total = Replayed()
        for number, step in enumerate(steps(self._pieces(topics), self._settings.lake.batch_records)):
            if self._stopping():
                self._log.warning("stops before the end: run it again to replay the rest")
                break
            total += self._patiently(step, number)
        for ranges in self._absent:
            self._log.warning("cannot replay", offsets=ranges)
        self._log.info(
            "would replay" if self._dry_run else "replayed all",
            offsets=total.offsets, events=total.events, quarantined=total.quarantined, corrected=total.corrected,
        )  # fmt: skip
        return total

    def _pieces(self, topics: Mapping[str, Topic]) -> Iterator[Piece]:
        """The rows of `batches` that are wanted and can be replayed; the others are noted."""
        every = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
        wanted = self._wanted
        since = {} if wanted.since is None else self._brokers.offsets_since(every, wanted.since)
        until = {} if wanted.until is None else self._brokers.offsets_since(every, wanted.until)
        starts: dict[TopicPartition, int | None] = {**since, **(wanted.starts or {})}
        ends: dict[TopicPartition, int | None] = {**until, **(wanted.ends or {})}
        earliest = self._brokers.offsets(every, earliest=True)
        ids = {topic.id for topic in topics.values()}
        where = condition(wanted, topics, earliest, starts, ends)
        kept = self._kept_from()
        rows = self._spark.read.format("delta").load(f"{self._lake}/{BATCHES}").where(where)
        after = "true"
        while True:
            page = rows.where(after).orderBy("epoch", "batch", "topic_id", "partition", "from").limit(_PAGE).collect()
            for row in page:
                at = earliest.get((row["topic"], row["partition"]), 0) if row["topic_id"] in ids else None
                piece = Piece(
                    row["topic"], row["topic_id"], row["partition"], row["from"], row["to"],
                    row["to"] if at is None else min(max(row["from"], at), row["to"]),
                    row["records"], row["events"], row["duplicates"], row["quarantined"], row["skipped"],
                    row["epoch"], row["batch"], row["landed_at"],
                )  # fmt: skip
                if kept is not None and piece.landed_at.astimezone(UTC) < kept:
                    self._absent.add(piece, piece.start, piece.end, _DROPPED)
                elif self._can(piece, known=at is not None):
                    yield piece
            if len(page) < _PAGE:
                return
            last = page[-1]
            after = (
                f"(epoch, batch, topic_id, partition, `from`) > ({last['epoch']}L, {last['batch']}L,"
                f" {quoted(last['topic_id'])}, {last['partition']}, {last['from']}L)"
            )

    def _kept_from(self) -> datetime | None:
        """Batches landed before it may lack rows because the tables' own retention dropped them: that was meant."""
        days = []
        for table in (EVENTS, QUARANTINE):
            detail = self._spark.sql(f"describe detail delta.`{self._lake}/{table}`").select("properties").first()
            days += [] if detail is None else [detail[0].get(RETAINED_FROM)]
        latest = max((day for day in days if day), default=None)
        return None if latest is None else datetime.fromisoformat(latest).replace(tzinfo=UTC) + timedelta(days=1)

    def _can(self, piece: Piece, *, known: bool) -> bool:
        if not known:
            self._absent.add(piece, piece.start, piece.end, _ANEW)
        elif not piece.whole:
            self._absent.add(piece, piece.start, piece.held, _GONE)
            if piece.held < piece.end and not piece.replayable:
                self._absent.add(piece, piece.held, piece.end, _PARTLY)
        return piece.replayable

    def _patiently(self, step: list[Piece], number: int) -> Replayed:
        """A step, cut shorter and done again when Kafka deletes records of it meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                return self._step(step, number)
            except (PySparkException, Py4JJavaError) as error:
                left = self._still_there(step)
                if left == step:
                    raise HaltError(root_cause(error)) from error
                self._log.debug("a step is cut shorter", exc_info=error)
                step = left
                if not step:
                    return Replayed()
        raise HaltError("Kafka deletes records faster than they can be replayed: replay later ones")

    def _still_there(self, step: list[Piece]) -> list[Piece]:
        earliest = self._brokers.offsets({piece.place for piece in step}, earliest=True)
        cut = [replace(p, held=min(max(p.held, earliest[p.place]), p.end)) for p in step]
        return [now for was, now in zip(step, cut, strict=True) if now == was or self._can(now, known=True)]

    def _step(self, step: list[Piece], number: int) -> Replayed:
        began = time.monotonic()
        version = transaction(self._epoch, number)
        if not self._dry_run:
            self._fence.check(version)
        ranges = merged(step)
        spans = [Range(topic, partition, *pair) for (topic, partition), pair in sorted(ranges.items())]
        landed_at = datetime.now(UTC)
        there = [
            rows_in(self._spark, self._lake, table, spans, self._topics.ids).withColumn(
                "sound", sf.lit(table == EVENTS)
            )
            for table in (EVENTS, QUARANTINE)
        ]
        records = self._spark.read.format("kafka").options(**range_options(self._settings.kafka, ranges)).load()
        keyed = records.withColumn("topic_id", sf.expr(self._topic_id()))
        missing = keyed.join(there[0].unionAll(there[1]).select(*_KEY), list(_KEY), "left_anti").persist()
        try:
            done = self._land(step, spans, missing, there, version, landed_at)
        finally:
            missing.unpersist()
        done = replace(done, offsets=sum(end - start for start, end in ranges.values()))
        self._log.info(
            "would replay" if self._dry_run else "replayed",
            step=number, offsets=done.offsets, events=done.events, quarantined=done.quarantined,
            corrected=done.corrected, seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip
        return done

    def _land(
        self,
        step: list[Piece],
        spans: list[Range],
        missing: DataFrame,
        there: list[DataFrame],
        version: int,
        landed_at: datetime,
    ) -> Replayed:
        pieces = self._frame(step)
        events, rejects = self._rows(step, spans, missing, landed_at, pieces)
        lacking = events.select("piece", sf.lit(True).alias("sound"), "wanted").unionAll(
            rejects.select("piece", sf.lit(False).alias("sound"), "wanted")
        )
        found = {(row["piece"], row["sound"]): (row["n"], row["wanted"]) for row in _counted(lacking)}
        has = there[0].unionAll(there[1]).join(sf.broadcast(pieces), _inside(), "inner")
        held = {(row["piece"], row["sound"]): row["n"] for row in _counted(has.withColumn("wanted", sf.lit(True)))}
        corrected = []
        for index, piece in enumerate(step):
            (sound, landed), (faulty, kept) = (found.get((index, kind), (0, 0)) for kind in (True, False))
            new = replace(
                piece,
                events=held.get((index, True), 0) + landed,
                quarantined=held.get((index, False), 0) + kept,
                duplicates=sound - landed,
                skipped=faulty - kept,
            )
            new = replace(new, records=new.events + new.quarantined + new.duplicates + new.skipped)
            if piece.whole and new.counts != piece.counts:
                corrected.append(new)
        adds = [sum(wanted for (_, kind), (_, wanted) in found.items() if kind is sound) for sound in (True, False)]
        if not self._dry_run:
            for table, frame, count in ((EVENTS, events, adds[0]), (QUARANTINE, rejects, adds[1])):
                if count:
                    self._fence.write(table, frame.where("wanted").select(*tables.columns(table, self._shape)), version)
                    self._log.debug("restored", table=table)
            if corrected:
                self._fence.replace(BATCHES, self._summary(corrected), _these(corrected), version)
        return Replayed(events=adds[0], quarantined=adds[1], corrected=len(corrected))

    def _rows(
        self, step: list[Piece], spans: list[Range], missing: DataFrame, landed_at: datetime, pieces: DataFrame
    ) -> tuple[DataFrame, DataFrame]:
        """The missing records as rows of either table, with `piece` and whether it is `wanted` there."""
        events = decode.events(missing, self._topics, landed_at, self._shape).where(f"{FAULT} is null")
        events = events.join(sf.broadcast(pieces), _inside(), "inner")
        horizon = self._settings.lake.horizon
        if horizon and any(piece.duplicates for piece in step):
            events = self._without_resends(events, horizon)
        else:
            events = events.withColumn("wanted", sf.lit(True))
        rows = self._quarantine.rows(missing, spans, landed_at, faults=True)
        assert rows is not None
        self._quarantine.check(missing, spans, landed_at)
        rejects = rows.join(sf.broadcast(pieces), _inside(), "inner").withColumn("wanted", self._quarantine.wanted)
        return events, rejects

    def _without_resends(self, events: DataFrame, horizon: float) -> DataFrame:
        """`wanted` is false for a resend, in a range that had any, of which a copy is in the table or comes before it."""
        micros = sf.unix_micros("received_time")
        bounds = events.agg(sf.min(micros).alias("low"), sf.max(micros).alias("high")).first()
        if bounds is None or bounds["low"] is None:
            return events.withColumn("wanted", sf.lit(True))
        low, high = (sf.timestamp_micros(sf.lit(bounds[side])) for side in ("low", "high"))
        reach = sf.expr(f"make_dt_interval(0, 0, 0, {horizon:.6f})")
        time_ = sf.col("received_time")
        told = sf.col("event_id").startswith(DETERMINISTIC.decode()) | (
            sf.get_json_object("attributes", f"$.{Attribute.REPUBLISHED}") == "true"
        )
        resends = events.where(told & sf.col("had_duplicates"))
        landed = (
            self._spark.read.format("delta").load(f"{self._lake}/{EVENTS}")
            .where((time_ >= low - reach) & (time_ <= high + reach))
            .select(sf.col("event_id").alias("copy_id"), time_.alias("copy_time"))
        )  # fmt: skip
        earlier = events.select(
            sf.col("event_id").alias("copy_id"),
            time_.alias("copy_time"),
            sf.struct("received_time", *_KEY).alias("copy_place"),
        )
        same = (sf.col("event_id") == sf.col("copy_id")) & (time_ <= sf.col("copy_time") + reach)
        same &= time_ >= sf.col("copy_time") - reach
        before = sf.struct("received_time", *_KEY) > sf.col("copy_place")
        found = (
            resends.join(landed, same, "left_semi").select(*_KEY)
            .unionAll(resends.join(earlier, same & before, "left_semi").select(*_KEY))
            .distinct().withColumn("resend", sf.lit(True))
        )  # fmt: skip
        return events.join(found, list(_KEY), "left").withColumn("wanted", sf.col("resend").isNull())

    def _topic_id(self) -> str:
        cases = " ".join(f"when {quoted(name)} then {quoted(own)}" for name, own in self._topics.ids.items())
        return f"case topic {cases} end"

    def _frame(self, step: list[Piece]) -> DataFrame:
        values = ", ".join(
            f"({index}, {quoted(piece.topic_id)}, {piece.partition}, {piece.held}L, {piece.end}L, {piece.duplicates > 0})"
            for index, piece in enumerate(step)
        )
        names = "piece, of_topic_id, of_partition, first, beyond, had_duplicates"
        return self._spark.sql(f"select * from values {values} as pieces({names})")  # noqa: S608

    def _summary(self, pieces: list[Piece]) -> DataFrame:
        rows = ", ".join(
            f"({p.epoch}L, {p.batch}L, {quoted(p.topic)}, {quoted(p.topic_id)}, {p.partition}, {p.start}L, {p.end}L, "
            f"{p.records}L, {p.events}L, {p.duplicates}L, {p.quarantined}L, {p.skipped}L, "
            f"timestamp'{p.landed_at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z')"
            for p in pieces
        )
        names = ", ".join(f"`{name}`" for name in SCHEMAS[BATCHES].names)
        return self._spark.sql(f"select * from values {rows} as batch({names})").coalesce(1)  # noqa: S608


def _counted(rows: DataFrame) -> list[Row]:
    """(piece, sound, n, wanted) of `rows`."""
    counts = (sf.count(sf.lit(1)).alias("n"), sf.count_if("wanted").alias("wanted"))
    return rows.groupBy("piece", "sound").agg(*counts).collect()


def _inside() -> Column:
    return sf.expr("topic_id = of_topic_id and partition = of_partition and offset >= first and offset < beyond")


def _these(pieces: list[Piece]) -> str:
    """The rows of `batches` of `pieces`, as SQL."""
    return " or ".join(
        f"(topic_id = {quoted(p.topic_id)} and partition = {p.partition} and `from` = {p.start}L)" for p in pieces
    )
