"""The proof of content: what landed is proven, what was changed since is named, by partition and offsets."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.landing.digests import Slots
from headrace_lake.rows.decode import Topics
from headrace_lake.tables.digest import (
    OF_TABLE,
    SLOTS,
    UNCOVERED,
    LineDigest,
    added,
    forgotten,
    hash_sql,
    hashes_sql,
    slots_of,
)
from headrace_lake.tables.layout import BATCHES, EVENTS, QUARANTINE, SCHEMAS
from headrace_reader import xxh64
from headrace_reader.content import _AT_ONCE, _hashes
from headrace_reader.proof import exactly_once
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.contract.embedded import EmbeddedKafka
from tests.lake.runs import Runs

WORD = 1 << 64


def test_a_column_is_covered_or_says_why_not() -> None:
    for table, covered in OF_TABLE.items():
        assert set(covered[1]) < set(covered[0])
        more = set(SCHEMAS[table].names) - {*covered[0], *UNCOVERED}
        assert not more, (
            f"{table}: put {more} into digest.UNCOVERED, with the reason; the covered columns cannot change"
        )


def test_what_a_digest_covers_never_changes() -> None:
    hashes = [hash_ for covered in OF_TABLE.values() for hash_ in hashes_sql(covered)]
    pinned = "717f8a91880106b228c698fe370912ca"
    assert hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:32] == pinned, (
        "existing lakes hold digests of these very hashes: a change contradicts all rows that have landed. Leave them as they are"
    )


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", 0xEF46DB3751D8E999),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_known_digests_of_xxh64(text: str, digest: int) -> None:
    assert xxh64.of_texts(pa.array([text]), np.zeros(1, np.uint64)).tolist() == [digest]


def test_values_of_all_lengths_in_a_slice_of_an_array() -> None:
    """Each alone gives the same as among others, whatever lies before it in the array."""
    rng = random.Random(1)
    values = [None if n % 7 == 3 else rng.randbytes(n) for n in [*range(100), 1000, 4096, 5, 33]]
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array(values, kind)[2:]
        seeds = np.arange(len(column), dtype=np.uint64)
        alone = [
            int(xxh64.of_texts(pa.array([value.as_py()], kind), seeds[n : n + 1])[0]) for n, value in enumerate(column)
        ]
        assert xxh64.of_texts(column, seeds).tolist() == alone


@pytest.mark.parametrize(("partitions", "each"), [([0], 1), ([1], 2), ([0, 2], 4), ([7], 8), ([200], SLOTS)])
def test_partitions_have_sums_of_their_own_as_long_as_there_are_enough(partitions: list[int], each: int) -> None:
    slots = Slots([Range("e", number, 0, 1) for number in partitions], Topics("e", "q", {"e": "1", "q": "2"}))
    assert (slots_of(partitions), slots.each) == (each, each)
    assert slots.of("e", partitions[0]) == partitions[0] % each
    assert slots.of("q", partitions[0]) == partitions[0] % each + each


def test_sums_are_those_of_words() -> None:
    assert added((WORD - 1, 5), (2, WORD - 5)) == (1, 0)
    assert added((1, 1), None) is None


def test_a_line_says_where_its_sums_are_and_leaves_out_tables_without_rows() -> None:
    text = str(LineDigest(4, 1, {"events": (1, -1), "quarantine": (0, 0), "web": None}))
    assert json.loads(text) == {"slots": 4, "slot": 1, "sums": {"events": f"{1:016x}{'f' * 16}", "web": None}}
    assert forgotten(text) == '{"slots": 4, "slot": 1, "sums": null}'
    assert forgotten(None) is None


def _value(kind: str, rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return None
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(-(1 << 50), 1 << 50))
    return {
        "string": "é" * rng.randrange(3) + "x" * rng.randrange(120),
        "binary": rng.randbytes(rng.randrange(120)),
        "int": rng.randrange(-(1 << 31), 1 << 31),
        "bigint": rng.randrange(-(1 << 63), 1 << 63),
        "double": rng.choice((0.0, -0.0, 1.5, float("nan"), float("inf"), -1e300)),
        "boolean": rng.random() < 0.5,
        "date": date(1970, 1, 1) + timedelta(days=rng.randrange(-9999, 99999)),
        "timestamp": moment,
    }[kind]


@pytest.mark.spark
def test_a_row_has_the_same_hashes_in_spark_and_here(spark: SparkSession) -> None:
    kinds = ["string", "binary", "int", "bigint", "double", "boolean", "date", "timestamp"] * 2
    names = [f"{kind}_{number}" for number, kind in enumerate(kinds)]
    rng = random.Random(2)
    rows = [tuple(_value(kind, rng) for kind in kinds) for _ in range(300)]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    (batch,) = frame.toArrow().combine_chunks().to_batches(_AT_ONCE)
    for seed in (0, 1):
        there = [row[0] % WORD for row in frame.selectExpr(hash_sql(names, seed)).collect()]
        assert _hashes(batch, names, seed).tolist() == there
        assert len(set(there)) > 290


@pytest.fixture(scope="module")
def whole(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A lake of several batches, landed by one job."""
    names = KafkaSettings(
        bootstrap_servers=kafka.bootstrap, events_topic="events.content", quarantine_topic="quarantine.content"
    )
    asyncio.run(ensure(names, TopicSettings(events_partitions=4)))
    runs = Runs(spark, names, tmp_path_factory.mktemp("content"))
    runs.send(800)
    runs.run(batch_records=300)
    runs.check()
    return runs


@pytest.fixture
def lake(whole: Runs, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(whole.lake, tmp_path / "lake")
    return tmp_path / "lake"


def update(table: str, where: str = "true", **values: str) -> Callable[[Path], None]:
    """Another writer changes rows."""

    def act(lake: Path) -> None:
        changed = DeltaTable(str(lake / table)).update(updates=values, predicate=where)
        assert changed["num_updated_rows"]

    return act


def one_lost_and_another_doubled(lake: Path) -> None:
    table = DeltaTable(str(lake / EVENTS))
    kept = table.to_pyarrow_table(filters=[("partition", "=", 1), ("offset", "=", 10)])
    table.delete('"partition" = 1 and "offset" = 11')
    there = kept.schema.get_field_index("offset")
    moved = kept.set_column(there, kept.schema.field(there), pa.array([11]))
    write_deltalake(str(lake / EVENTS), moved, mode="append", schema_mode="merge")


def replaced_file(lake: Path) -> None:
    """A data file with the same rows, and other bodies."""
    path = max((lake / EVENTS).glob("day=*/*.parquet"), key=lambda path: path.stat().st_size)
    found = parquet.read_table(path, partitioning=None)
    at = found.schema.get_field_index("body")
    found = found.set_column(at, found.schema.field(at), pa.array([None] * len(found), pa.string()))
    parquet.write_table(found, path)


DAMAGES: dict[str, dict[str, Callable[[Path], None]]] = {
    EVENTS: {
        "a space in one body": update(EVENTS, '"partition" = 2 and "offset" = 10', body="body || ' '"),
        "bodies moved to payload": update(EVENTS, payload="arrow_cast(body, 'Binary')", body="null"),
        "one id rewritten": update(EVENTS, '"partition" = 0 and "offset" = 3', event_id="'d.0'"),
        "rows exchanged between partitions": update(EVENTS, '"partition" in (1, 2)', partition='3 - "partition"'),
        "two rows exchanged": update(EVENTS, '"partition" = 2 and "offset" in (20, 21)', offset='41 - "offset"'),
        "one event lost and another doubled in its place": one_lost_and_another_doubled,
        "a data file replaced": replaced_file,
        "landed_at moved back": update(EVENTS, landed_at="landed_at - interval '1 hour'"),
        "streams renamed": update(EVENTS, stream="'other'"),
        "event_time moved": update(EVENTS, event_time="event_time + interval '1 second'"),
        "received_time moved": update(EVENTS, received_time="received_time - interval '1 day'"),
        "attributes emptied": update(EVENTS, attributes="null"),
        "content types rewritten": update(EVENTS, '"offset" = 4', content_type="'text/plain'"),
        "the digest of a line rewritten": update(BATCHES, "events > 0", digest="replace(digest, '1', '2')"),
    },
    QUARANTINE: {
        "raw bytes of quarantine emptied": update(QUARANTINE, raw="arrow_cast('', 'Binary')"),
        "parts renumbered": update(QUARANTINE, part="part + 1", parts="parts + 1"),
    },
}
"""What another writer does that only the rows' content says, by the table whose ranges are named. A digest covers all columns."""


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize(("table", "name"), [(table, name) for table in DAMAGES for name in DAMAGES[table]])
def test_damage_is_named(lake: Path, table: str, name: str) -> None:
    DAMAGES[table][name](lake)
    wrong = [row["check"] for row in exactly_once(lake, content=True)[:-1] if not row["ok"]]
    assert f"each range of {table} holds what landed" in wrong, wrong
