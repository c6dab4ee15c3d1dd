"""A typed table of one stream of the lake's events: a second streaming query, exactly once. See docs/typed-tables.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

SAMPLE = 1_000
"""How many bodies a schema is inferred from."""
PLACE = ("topic_id", "partition", "offset")


def inferred(events: DataFrame, stream: str) -> str:
    """Returns the schema of some bodies of the stream, as DDL."""
    bodies = events.where((sf.col("stream") == stream) & sf.col("body").isNotNull()).select("body").limit(SAMPLE)
    found = events.sparkSession.read.json(bodies.rdd.map(lambda row: str(row["body"])))
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in found.schema.fields)


def typed(events: DataFrame, stream: str, schema: str) -> DataFrame:
    """Returns the events of the stream with their body as the struct `value`; a value of another type is null there."""
    columns = ("event_id", "source", "event_time", "received_time", *PLACE, "day", "body")
    return events.where(sf.col("stream") == stream).select(*columns, sf.from_json("body", schema).alias("value"))


def merge(target: str, batch: DataFrame, _: int) -> None:
    """Adds the rows of a batch that the table at `target` has not, by their place in Kafka."""
    batch.limit(0).write.format("delta").mode("append").partitionBy("day").save(target)  # makes the table
    batch.createOrReplaceTempView("batch")
    same = " and ".join(f"t.`{name}` = b.`{name}`" for name in ("day", *PLACE))
    batch.sparkSession.sql(f"MERGE INTO delta.`{target}` t USING batch b ON {same} WHEN NOT MATCHED THEN INSERT *")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake", help="folder or URL of the lake")
    parser.add_argument("stream", help="the stream whose events the table gets")
    parser.add_argument("target", help="folder or URL of the typed table; outside the lake")
    parser.add_argument("checkpoint", help="folder or URL of this query's checkpoint")
    parser.add_argument(
        "--schema", help="of the body, as DDL; without it one is inferred and printed, and nothing else done"
    )
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.getOrCreate()
    path = f"{given.lake}/events"
    if given.schema is None:
        print(inferred(spark.read.format("delta").load(path), given.stream))
        return
    # an erasure deletes rows: `ignoreDeletes` would end the query there
    events = spark.readStream.format("delta").option("skipChangeCommits", "true").load(path)
    rows = typed(events, given.stream, given.schema)
    writer = rows.writeStream.foreachBatch(partial(merge, given.target))
    writer.option("checkpointLocation", given.checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
