"""Maintenance on real Delta tables: what it may change, and what it never changes."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from headrace_cli.verbs import query
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import transaction_log
from headrace_lake.tables.fence import Fence, transaction
from headrace_lake.tables.layout import BATCHES, EVENTS, LOG_AGE
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import RETAINED_APP
from headrace_lake.tables.transaction_log import LiveFiles, day_of
from headrace_lake.upkeep import maintenance, retention
from headrace_lake.upkeep.maintenance import Maintenance
from headrace_lake.upkeep.merging import choice, compaction
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_reader.proof import exactly_once
from py4j.protocol import Py4JError, Py4JJavaError
from pyarrow.parquet import ParquetFile
from pyspark.sql import SparkSession
from structlog.testing import CapturingLogger

from tests.lake.test_query import batch, commit, event, make

pytestmark = [pytest.mark.spark]

PER_BATCH = 20  # events of a batch


class Lake:
    """Tables with batches; each batch is a file of events and one of `batches`."""

    def __init__(self, spark: SparkSession, folder: Path, tables: Path) -> None:
        """`tables` are claimed and empty, and are copied."""
        self.spark = spark
        self.folder = folder
        self.today = datetime.now(UTC).date()
        shutil.copytree(tables, folder, dirs_exist_ok=True)
        self.tables = Tables(spark, str(folder))
        self.landed = 0
        self.metrics = LakeMetrics()
        self.log = CapturingLogger()

    def path(self, table: str) -> str:
        return str(self.folder / table)

    def land(self, day: date | None = None) -> None:
        number, day = self.landed, day or self.today
        first, noon = number * PER_BATCH, datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=12)
        offsets = range(first, first + PER_BATCH)
        line = {**batch(first, first + PER_BATCH, PER_BATCH), "batch": number, "landed_at": noon}
        make(self.folder, events=[event(offset, landed_at=noon, day=day) for offset in offsets])
        commit(self.folder, EVENTS, transaction(1, number))
        make(self.folder, batches=[line])
        commit(self.folder, BATCHES, transaction(1, number))
        self.landed += 1

    def inventory(self, table: str) -> LiveFiles:
        found = LiveFiles(Storage(self.spark), self.path(table))
        found.latest()
        return found

    def on_disk(self) -> int:
        return len([*(self.folder / EVENTS).glob("day=*/*.parquet")])

    def maintenance(self, **settings: Any) -> Maintenance:
        chosen = LakeSettings(path=str(self.folder), **{"maintenance_share": 0.9, **settings})
        return Maintenance(
            self.tables, chosen, epoch=1, metrics=self.metrics, log=self.log,  # type: ignore[arg-type]
            stopping=lambda: False, agree=lambda: True,
        )  # fmt: skip

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"headrace_lake_{name}", labels) or 0.0

    def proof(self) -> list[dict[str, Any]]:
        return [row for row in exactly_once(self.folder) if not row["ok"]]


def all_of(table: LiveFiles) -> choice.Piece:
    """A piece of all files of the table's one day."""
    (day,) = {day_of(name) for name in table.files}
    return choice.Piece(Path(table._table).name, day, {name: file.size for name, file in table.files.items()})


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four small files are enough to merge, and no piece waits for another."""
    monkeypatch.setattr(maintenance, "rest_after", lambda *_: 0.0)
    monkeypatch.setattr(choice, "MOST_SMALL", 4)
    monkeypatch.setattr(choice, "_FAN", 4)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, claimed_tables: Path) -> Lake:
    return Lake(spark, tmp_path, claimed_tables)


@pytest.fixture
def full(lake: Lake) -> Lake:
    """A lake with four batches: enough to merge."""
    for _ in range(4):
        lake.land()
    return lake


def test_merged_files_are_sorted_by_stream_without_changed_rows(lake: Lake) -> None:
    streams = [f"s{10 + offset * 7919 % 50}" for offset in range(1_000)]
    for half in (range(500), range(500, 1_000)):
        make(lake.folder, events=[event(offset, stream=streams[offset]) for offset in half])
    found = lake.inventory(EVENTS)
    assert compaction.merge(lake.spark, lake.path(EVENTS), all_of(found), found)
    table = DeltaTable(lake.path(EVENTS))
    (path,) = table.file_uris()
    rows = ParquetFile(path).read(columns=["stream", "offset"]).to_pylist()
    assert [(row["stream"], row["offset"]) for row in rows] == sorted(zip(streams, range(1_000), strict=True))
    log = lake.folder / EVENTS / "_delta_log" / f"{table.version():020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    assert [next(iter(action)) for action in actions] == ["commitInfo", "add", "remove", "remove"]
    assert {action[kind]["dataChange"] for action in actions for kind in action if kind != "commitInfo"} == {False}
    assert actions[0]["commitInfo"]["operation"] == "OPTIMIZE"
    assert json.loads(actions[1]["add"]["stats"])["minValues"]["stream"] == "s10"


@pytest.mark.parametrize("step", ["merge_files", "actions_of"])
def test_a_merge_brings_back_no_row_deleted_meanwhile(full: Lake, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a file were erased while it was read, or before the commit: the merged file still has them."""
    table = full.inventory(EVENTS)
    piece, done = all_of(table), getattr(compaction, step)

    def deleted_meanwhile(*given: Any) -> Any:
        full.spark.sql(f"delete from delta.`{full.path(EVENTS)}` where offset = 7")
        return done(*given)

    with monkeypatch.context() as patched:
        patched.setattr(compaction, step, deleted_meanwhile)
        with nullcontext() if step == "merge_files" else pytest.raises(Py4JJavaError, match="Concurrent"):
            assert compaction.merge(full.spark, full.path(EVENTS), piece, table) == 0
    assert compaction.merge(full.spark, full.path(EVENTS), piece, table) == 0, "and not later, either"
    rows = DeltaTable(full.path(EVENTS)).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert sorted(rows) == [offset for offset in range(4 * PER_BATCH) if offset != 7]


def test_a_failure_stops_nothing_and_is_tried_again_later(full: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_LOOK", 0.0)
    job = full.maintenance()
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "merge", Mock(side_effect=Py4JError("disk on fire")))
        job.run_due()
    said = [call.kwargs for call in full.log.calls if call.args == ("maintenance failed",)]
    assert [(line["table"], line["reason"]) for line in said] == [
        (EVENTS, "Py4JError: disk on fire"), (BATCHES, "Py4JError: disk on fire"),
    ]  # fmt: skip
    assert full.value("maintenance_failures_total", task="compact") == 2
    job.run_due()
    assert full.value("maintenance_runs_total", task="compact") == 0, "too early"
    monkeypatch.setattr(job, "_not_before", {})
    job.run_due()
    assert full.value("maintenance_runs_total", task="compact") == 2
    assert [len(full.inventory(name).files) for name in (EVENTS, BATCHES)] == [1, 1]
    assert full.proof() == []


def test_whole_days_go_and_the_proof_still_holds(lake: Lake) -> None:
    today = lake.today
    days = [today - timedelta(days=back) for back in (9, 3, 2, 1, 0)]
    for day in days:
        lake.land(day)
    lake.maintenance(retention_days=2).run_due()
    (row,) = query.run("select min(day) as first, count(*) as n from events", lake.folder)
    assert row == {"first": today - timedelta(days=2), "n": 3 * PER_BATCH}
    assert lake.proof() == []
    (row,) = query.run("select count(*) as n from batches", lake.folder)
    assert row["n"] == len(days), "what was landed stays known"
    assert lake.value("maintenance_runs_total", task="retain") == 1  # quarantine has no rows
    lake.maintenance(retention_days=2).run_due()
    assert lake.value("maintenance_runs_total", task="retain") == 1, "nothing was due"
    retention.drop(lake.tables, EVENTS, lake.inventory(EVENTS), today - timedelta(days=3))
    now = DeltaTable(lake.path(EVENTS))
    assert now.transaction_version(RETAINED_APP) == (today - timedelta(days=2) - date(1970, 1, 1)).days
    assert lake.proof() == []


def test_vacuum_deletes_what_is_old_enough_only(full: Lake) -> None:
    new = full.inventory(EVENTS)
    assert (retention.vacuum_due(new, 3600), retention.vacuum_due(new, 0)) == (False, True), "by its creation"
    full.maintenance().run_due()
    stray = full.folder / EVENTS / f"day={full.today}" / "part-of-a-killed-job.parquet"
    stray.write_bytes(b"half")
    assert full.on_disk() == 6
    retention.vacuum(full.tables, EVENTS, full.inventory(EVENTS), 7 * 86_400)
    assert full.on_disk() == 6, "readers may still use them"
    table = full.inventory(EVENTS)
    assert not retention.vacuum_due(table, 3600)
    retention.vacuum(full.tables, EVENTS, full.inventory(EVENTS), 0)
    assert full.on_disk() == 1
    table.latest()
    assert full.proof() == []


def test_the_log_is_cleaned_up_to_an_old_checkpoint(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "_AWAY", 0.0)  # all commits are older
    lake.land()
    table = DeltaTable(lake.path(BATCHES))
    while table.version() < 32:
        table.alter.set_table_properties(
            {"delta.deletedFileRetentionDuration": f"interval {30 + table.version()} days"}
        )
        if table.version() in (12, 24):
            table.create_checkpoint()
    folder = lake.folder / BATCHES / "_delta_log"
    fence = Fence(lake.tables)
    fence.check(transaction(1, 0))
    for age, kept in ((LOG_AGE - 3600, range(33)), (LOG_AGE + 7200, range(24, 33))):
        for path in folder.glob("0*"):
            os.utime(path, (time.time() - age + int(path.name[:20]),) * 2)
        lake.tables.clean_log(BATCHES)
        assert sorted(int(path.stem) for path in folder.glob("*.json")) == [*kept], age
    assert [path.name[:20] for path in folder.glob("*.parquet")] == [f"{24:020d}"]
    for reread in (fence, Fence(lake.tables)):
        reread.check(transaction(1, 0))
        assert reread.latest(BATCHES) == transaction(1, 0)
    lake.land()
    assert lake.proof() == []
