"""The tables by their logs: what a log may say, which files are live, and what the tables say of themselves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.layout import ABOUT, EVENTS, SCHEMAS, STATISTICS
from headrace_lake.tables.on_spark import Span, may_hold
from headrace_lake.tables.properties import KNOWN_FEATURES
from headrace_lake.tables.transaction_log import File, LiveFiles, TransactionLog, live_rows, newest, since_time
from pyspark.sql import SparkSession


class Files:
    """The folder of a log."""

    def __init__(self, *commits: int) -> None:
        self.log = TransactionLog(self, "/lake/events")  # type: ignore[arg-type]
        self.texts = {f"{number:020d}.json": '{"commitInfo": {}}' for number in commits}

    def put(self, number: int, *actions: dict[str, Any]) -> None:
        self.texts[f"{number:020d}.json"] = "\n".join(map(json.dumps, actions))

    def names(self, _: str) -> list[str]:
        return sorted(self.texts)

    def read(self, path: str) -> str | None:
        return self.texts.get(Path(path).name)


def protocol(*features: str) -> dict[str, Any]:
    return {
        "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [*features]}
    }


DAMAGED = r"the log of the table /lake/events has the commit 1 damaged \(.*put the file back"
V2 = "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"


@pytest.mark.parametrize(
    ("commits", "more", "said"),
    [
        *(((0, 1, 2), {f"{1:020d}.json": text}, DAMAGED) for text in ("", '{"txn": {"appId": "headrace", "ver', "\0" * 90)),
        ((1, 2, 3), {}, "begins with the commit 1"),
        ((0, 2, 3), {}, "lacks the commit 1"),
        ((10, 11), {V2: ""}, r"begins with the commit 10 .* DROP FEATURE v2Checkpoint"),
        *(
            ((0,), {f"{1:020d}.json": json.dumps(protocol("appendOnly", feature))}, f"has the feature {feature}, which this")
            for feature in ("v2Checkpoint", "deletionVectors", "columnMapping", "catalogManaged", "of tomorrow")
        ),
        ((0,), {f"{1:020d}.json": '{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}'}, "columnMapping"),
        ((0,), {f"{1:020d}.json": '{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}'}, ""),
        ((0,), {f"{1:020d}.json": json.dumps(protocol(*sorted(KNOWN_FEATURES)))}, ""),
        ((0,), {f"{1:020d}.json": '{"add": {"stats": "a client\'s \x85\u2028\u2029"}}\n{"commitInfo": {}}\n'}, ""),
    ],
    ids=str,
)  # fmt: skip
def test_a_log_that_cannot_be_read_stops_the_job(commits: tuple[int, ...], more: dict[str, str], said: str) -> None:
    """Read on to a hole, the log would end there: an older job would not be shut out, and a claim would come too low."""
    files = Files(*commits)
    files.texts |= more
    if not said:
        assert files.log.latest() == -1
        return
    with pytest.raises(HaltError, match=said):
        files.log.latest()


def test_a_table_that_forgets_transactions_stops_the_job() -> None:
    """Delta then takes a batch that has landed for a new one, and the proof misses what was dropped and erased."""
    files = Files(0, 1, 2)
    forgets = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    files.put(0, {"txn": {"appId": "another", "version": 9}})
    files.put(1, {"metaData": {"id": "", "configuration": forgets}}, {"txn": {"appId": "headrace", "version": 3}})
    with pytest.raises(HaltError, match=r"UNSET TBLPROPERTIES \('delta.setTransactionRetentionDuration'\)"):
        files.log.latest()
    files.put(3, {"metaData": {"id": "", "configuration": {}}})
    assert files.log.latest() == 3


def test_a_file_that_is_added_again_is_one() -> None:
    """As by `ANALYZE TABLE … COMPUTE DELTA STATISTICS`, which adds all files once more, with their statistics."""
    files, file = Files(0), {"path": "day=2026-11-27/x", "size": 7}
    table = LiveFiles(files, "/lake/events")  # type: ignore[arg-type]
    for number, kind in enumerate(("add", "add", "remove", "remove", "add"), 1):
        files.put(number, {kind: file})
        table.latest()
        assert table.files == ({"day=2026-11-27/x": File(7, 0.0, None)} if kind == "add" else {})
        assert table.has(["day=2026-11-27/x"]) is (kind == "add")


NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def minutes(since: int, count: int = 2) -> pa.Table:
    """Rows of `count` minutes, one each, from the minute `since` after noon on; their microseconds are beyond the log's times."""
    numbers = range(since, since + count)
    times = [NOON + timedelta(minutes=number, microseconds=999) for number in numbers]
    return pa.table(
        {"offset": list(numbers), "time": pa.array(times, pa.timestamp("us", "UTC")), "day": ["2026-11-27"] * count}
    )


def offsets(spark: SparkSession, table: str, since: datetime | None = None) -> list[int]:
    limit = 0 if since is None else int(since.timestamp() * 1000)
    rows = live_rows(spark, table, ["offset", "time"], partial(since_time, "time", limit))
    return sorted(row.offset for row in rows.collect())


@pytest.mark.spark
@pytest.mark.parametrize("checkpoints", [(), (5,), (6,), (3, 9), (9,)], ids=str)
def test_rows_are_those_of_the_files_that_are_live(
    spark: SparkSession, tmp_path: Path, checkpoints: tuple[int, ...]
) -> None:
    """Ten files of two minutes, of which a merge has replaced the first six by one; the log's checkpoint is before the merge,
    after it, or behind all. Files that end before a time are left out.
    """
    table = str(tmp_path / "a table")
    for number in range(6):
        write_deltalake(table, minutes(2 * number), mode="append", partition_by=["day"])
    delta = DeltaTable(table)
    for version in range(6, 10):
        if version - 1 in checkpoints:
            delta.create_checkpoint()
        if version == 6:
            delta.optimize.compact()
        else:
            write_deltalake(table, minutes(2 * (version - 1)), mode="append")
        delta.update_incremental()
    if 9 in checkpoints:
        delta.create_checkpoint()
    assert offsets(spark, table) == [*range(18)]
    log = LiveFiles(Storage(spark), table)
    log.latest()
    assert len(log.paths()) == 4
    last = NOON + timedelta(minutes=13)
    assert offsets(spark, table, last) == offsets(spark, table, last + timedelta(milliseconds=1)) == [*range(12, 18)]
    assert offsets(spark, table, last + timedelta(milliseconds=2)) == [*range(14, 18)], "the log has no microseconds"
    assert offsets(spark, table, NOON + timedelta(minutes=18)) == []
    assert newest(Storage(spark), table, "time") == (NOON + timedelta(minutes=17, milliseconds=1)).timestamp() * 1000
    assert newest(Storage(spark), table, "day") == 0, "no file has a time there"


@pytest.mark.parametrize(
    ("span", "may"),
    [
        (Span("b", 1, 20), True), (Span("b", 1, 21), False), (Span("b", 1, 0, 10), False), (Span("b", 1, 0, 11), True),
        (Span("b", 0, 20), False), (Span("b", 2, 20), False), (Span("a", 1, 20), False), (Span("c", 1, 20), False),
    ],
)  # fmt: skip
def test_only_files_that_may_hold_a_place_are_read(span: Span, may: bool) -> None:
    ranges = {"topic_id": ("b", "b"), "partition": (1, 1), "offset": (10, 20)}
    assert may_hold(ranges, [Span("d", 0, 0), span]) is may
    assert may_hold({"offset": (10, 20)}, [span]), "of other columns the log has no ranges"


@pytest.mark.spark
def test_new_tables_need_the_oldest_readers_and_writers_only(empty_tables: Path) -> None:
    """Their columns say what they mean to a reader without Spark, too."""
    for name, schema in SCHEMAS.items():
        table = DeltaTable(str(empty_tables / name))
        protocol, about = table.protocol(), table.metadata()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), name
        assert not protocol.reader_features
        assert not protocol.writer_features
        assert about.description == ABOUT[name]
        said = {field.name: field.metadata.get("comment") for field in table.schema().fields}
        assert said == {field.name: field.metadata["comment"] for field in schema.fields}
        assert all(text and not set(text) & set("|\n`") for text in said.values()), "they fit into a table of a page"
    events = DeltaTable(str(empty_tables / EVENTS)).metadata()
    assert events.configuration[STATISTICS].startswith("stream,source,event_time,")
