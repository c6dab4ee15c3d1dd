"""Sums up the hashes of rows while they are written, or of rows that are in a table; see `headrace_lake.tables.digest`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.start import within
from headrace_lake.rows.decode import Topics
from headrace_lake.spark.jvm import selected
from headrace_lake.tables import erasures
from headrace_lake.tables.digest import NOTHING, SEEDS, Covered, LineDigest, Sums, added, hashes_sql, slots_of

_HASH: Final = "_headrace?digest_"
_SLOT: Final = "_headrace?digest_slot"
_SUMS: Final = "_headrace?digest_sums"


class Slots:
    """Where the sums of each partition are, in a batch with `ranges`. The quarantine topic has slots of its own."""

    def __init__(self, ranges: Iterable[Range], topics: Topics) -> None:
        self.each: Final = slots_of(item.partition for item in ranges)
        self._topics = topics

    def of(self, topic: str, partition: int) -> int:
        """Returns the slot of a partition."""
        return partition % self.each + (self.each if topic == self._topics.quarantine else 0)

    def line(self, topic: str, partition: int, digests: Mapping[str, Sequence[Sums | None]]) -> str:
        """Returns the digest of a line of `batches`; `digests`: table -> slot -> sums."""
        slot = self.of(topic, partition)
        named = {table: sums[slot] for table, sums in digests.items() if slot < len(sums)}
        return str(LineDigest(self.each, slot, named))

    def hashed(self, rows: DataFrame, covered: Covered, wanted: str | Column) -> DataFrame:
        """Returns `rows` with what `sums` reads. Rows that are not `wanted` count as nothing."""
        condition = sf.expr(wanted) if isinstance(wanted, str) else wanted
        own = {
            f"{_HASH}{place}": sf.when(condition, sf.expr(hash_)).otherwise(sf.lit(0))
            for place, hash_ in enumerate(hashes_sql(covered))
        }
        return rows.withColumns({**own, _SLOT: sf.expr(self._slot())})

    def hashed_with(self, rows: DataFrame, covered: Covered, wanted: str, *more: str) -> DataFrame:
        """Returns rows like `hashed`, and with the columns `more` (SQL, each with its name), in one step."""
        own = (f"if({wanted}, {hash_}, 0L) as `{_HASH}{place}`" for place, hash_ in enumerate(hashes_sql(covered)))
        return selected(rows, "*", *more, *own, f"{self._slot()} as `{_SLOT}`")

    def _slot(self) -> str:
        return f"partition % {self.each} + if(topic = '{self._topics.quarantine}', {self.each}, 0)"

    def sums(self, topics: int = 1) -> list[Column]:
        """Aggregates to observe; `read` takes their values. `topics`: how many have rows here, the events topic first."""
        sums = (
            f"sum(if(`{_SLOT}` = {slot}, `{_HASH}{place}`, 0L))"
            for slot in range(self.each * topics)
            for place in range(len(SEEDS))
        )
        return [sf.expr(f"array({', '.join(sums)})").alias(_SUMS)]

    def read(self, seen: Mapping[str, Any], topics: int = 1) -> list[Sums | None]:
        """Returns slot -> sums, from the values of `sums`."""
        sums = seen[_SUMS]
        return [(sums[2 * slot] or 0, sums[2 * slot + 1] or 0) for slot in range(self.each * topics)]

    def there(
        self, spark: SparkSession, lake: str, table: str, covered: Covered, ranges: Sequence[Range]
    ) -> list[Sums | None]:
        """Returns slot -> sums of the rows of `ranges` in `table`; None where rows of them were erased. Blocks: it reads them."""
        inside = within(ranges, self._topics.ids)
        rows = spark.read.format("delta").load(f"{lake}/{table}").where(inside)
        names = {topic_id: name for name, topic_id in self._topics.ids.items()}
        found: dict[int, Sums | None] = dict.fromkeys(range(2 * self.each), NOTHING)
        hashes = [sf.expr(f"sum({hash_})") for hash_ in hashes_sql(covered)]
        for topic_id, number, *sums in rows.groupBy("topic_id", "partition").agg(*hashes).collect():
            slot = self.of(names[topic_id], number)
            found[slot] = added(found[slot], (sums[0], sums[1]))
        if erasures.exists(spark, lake):
            gone = erasures.places(spark, lake, table).where(inside).select("topic_id", "partition").distinct()
            for topic_id, number in gone.collect():
                found[self.of(names[topic_id], number)] = None
        return list(found.values())
