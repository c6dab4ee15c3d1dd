"""The mirror in Iceberg: at every version of the Delta tables it shows the same rows, of the same files. Without Spark."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import structlog
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from headrace_common.operations import log
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.layout import BATCHES, EVENTS, SCHEMAS
from headrace_mirror import __main__, target
from headrace_mirror.catalog import install
from headrace_mirror.follower import Follower
from headrace_mirror.metrics import MirrorMetrics
from headrace_mirror.settings import MirrorSettings
from headrace_mirror.source import VERSION
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import PyArrowFileIO
from structlog.testing import CapturingLogger

from tests.lake.runs import Runs
from tests.lake.test_query import append, batch, erase, event
from tests.tiers import sized


class Lake:
    """A lake written by deltalake, and its mirror."""

    def __init__(self, folder: Path, name: str = "the lake") -> None:
        self.path = folder / name  # pyiceberg and Delta's log spell a path with a space in their own ways
        self.ice = folder / "ice"
        self.ice.mkdir()
        self.properties = {"uri": f"sqlite:///{self.ice}/catalog.db", "warehouse": str(self.ice)}
        self.batch = 0
        self.metrics = MirrorMetrics()
        self.follower = self.new_follower()

    def new_follower(self, **properties: Any) -> Follower:
        section = MirrorSettings(lake=str(self.path), catalog={**self.properties, **properties})
        return Follower(section, self.metrics, CapturingLogger())  # type: ignore[arg-type]

    def land(self, records: int = 5, day: int = 1) -> None:
        """Appends a batch as the job does: rows first, its line last."""
        self.batch += 1
        first = self.batch * 1000
        rows = [
            event(
                first + number, event_id=f"d.{self.batch:04}{number:04}", body=None if number % 3 else "é" * 400,
                payload=b"\xff\x00" if number % 2 else None, day=date(2026, 1, day),
            )
            for number in range(records)
        ]  # fmt: skip
        append(self.path / EVENTS, SCHEMAS[EVENTS], rows)
        append(self.path / BATCHES, SCHEMAS[BATCHES], [batch(first, first + records, records)])

    def erase(self) -> None:
        offset = self.batch * 1000
        erase(self.path, offsets=[offset, 7], ids=[])
        kept = self.delta("events").to_pyarrow_table().filter(pc.field("offset") != offset)
        write_deltalake(self.path / EVENTS, kept, mode="overwrite", partition_by=["day"])

    def delta(self, name: str) -> DeltaTable:
        return DeltaTable(self.path / name)

    def catalog(self) -> Catalog:
        return load_catalog("headrace", **self.properties)

    def check(self, newest: bool = True) -> None:
        """Each Iceberg table shows what its Delta table held at the version that its snapshot names, of the same files."""
        for name in sorted(each.name for each in self.path.iterdir()):
            identifier = ("headrace", name)
            mirrored = (
                self.catalog().load_table(identifier) if newest or self.catalog().table_exists(identifier) else None
            )
            if mirrored is None or not (newest or mirrored.current_snapshot()):
                continue
            version = int(mirrored.current_snapshot().summary.additional_properties[VERSION])
            delta = DeltaTable(self.path / name, version=version)
            assert not newest or version == self.delta(name).version()
            files = delta.get_add_actions().column("path").to_pylist()
            planned = [task.file.file_path for task in mirrored.scan().plan_files()]
            assert sorted(planned) == sorted(f"{self.path}/{name}/{path}" for path in files)
            found = mirrored.scan().to_arrow()
            assert ordered(found) == ordered(pa.table(delta.to_pyarrow_table()))
            assert found.schema.names == [field.name for field in delta.schema().fields]


def ordered(rows: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows.to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.land()
    made.delta(EVENTS).alter.set_table_properties({"delta.dataSkippingStatsColumns": "event_id,event_time,offset"})
    return made


def merge(lake: Lake) -> None:
    lake.delta("events").optimize.compact()


def drop_a_day(lake: Lake) -> None:
    lake.delta("events").delete("day = '2026-01-01'")


def add_a_column(lake: Lake) -> None:
    lake.delta("events").alter.add_columns([Field("status", PrimitiveType("integer"))])
    lake.land()


STEPS: list[Callable[[Lake], object]] = [
    lambda lake: lake.land(day=2),
    lambda lake: lake.land(day=1),
    merge,
    Lake.erase,
    lambda lake: lake.land(day=3),
    add_a_column,
    lambda lake: lake.delta("events").alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
    merge,
    drop_a_day,
    lambda lake: lake.delta("events").vacuum(0, enforce_retention_duration=False, dry_run=False),
    lambda lake: lake.delta("events").create_checkpoint(),
    lambda lake: lake.land(day=3),
    Lake.erase,
]


def test_each_step_shows_the_same_rows_and_spares_delta(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old snapshots go, with what only they need."""
    monkeypatch.setattr(target, "KEEP", 2)
    for step in [lambda _: None, *STEPS]:
        step(lake)
        before = set(lake.path.rglob("*"))
        lake.follower.once()
        lake.check()
        assert before == set(lake.path.rglob("*"))
    lake.new_follower().once()  # it has nothing to do
    lake.check()
    events = lake.catalog().load_table(("headrace", "events"))
    assert len(events.metadata.snapshots) == 3
    manifests = {manifest.manifest_path for each in events.metadata.snapshots for manifest in each.manifests(events.io)}
    needed = manifests | {each.manifest_list for each in events.metadata.snapshots}
    found = Path(events.location().removeprefix("file://")).rglob("*.avro")
    assert {f"{path}" for path in found} == {path.removeprefix("file://") for path in needed}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.long
def test_killed_before_any_step_it_catches_up(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A step: it touches a file of the mirror, or the catalog."""
    left = -1

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return real(*arguments, **named)

        return step

    lake.land(day=2)
    lake.land(day=1)
    lake.follower.once()
    for change in (add_a_column, merge, Lake.erase, drop_a_day):
        change(lake)
    kept = shutil.copytree(lake.ice, tmp_path / "kept")
    for owner, names in (
        (PyArrowFileIO, ("new_output", "new_input", "delete")),
        (SqlCatalog, ("create_table", "commit_table")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    for steps in itertools.count(1, sized(4, 4, 1)):
        shutil.rmtree(lake.ice)
        shutil.copytree(kept, lake.ice)
        left = steps
        try:
            lake.new_follower().once()
        except Killed:
            lake.check(newest=False)
            lake.new_follower().once()
            lake.check()
        else:
            break
    assert steps > 10


def test_a_commit_of_another_mirror_in_between_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.follower.once()
    lake.land(day=2)
    real = target._data_files

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(target, "_data_files", real)
        lake.new_follower().once()
        return real(*arguments)

    monkeypatch.setattr(target, "_data_files", overtaken)
    with pytest.raises(Exception, match="main"):
        lake.follower.once()
    lake.follower.once()
    lake.check()


def test_another_lake_is_refused_until_its_tables_are_dropped(lake: Lake) -> None:
    lake.follower.once()
    shutil.rmtree(lake.path)
    lake.land(records=2)
    with pytest.raises(ConfigError):
        lake.new_follower().once()
    lake.new_follower(namespace="other").once()
    for name in ("events", "batches"):
        lake.catalog().drop_table(("headrace", name))
    lake.new_follower().once()
    lake.check()


@pytest.mark.parametrize(("batches", "runs_on"), [(1, True), (3, False)])
def test_a_backup_that_was_put_back_is_shown(lake: Lake, tmp_path: Path, batches: int, runs_on: bool) -> None:
    """Its tables have had fewer commits since than the mirror has seen, as many, or more."""
    backup = shutil.copytree(lake.path, tmp_path / "backup")
    lake.land()
    lake.land()
    lake.follower.once()
    shutil.rmtree(lake.path)
    shutil.copytree(backup, lake.path)
    for _ in range(batches):
        lake.land(records=2)
    (lake.follower if runs_on else lake.new_follower()).once()
    lake.check()


def test_the_metadata_lies_outside_the_lake(lake: Lake) -> None:
    (lake.path.parent / "link").symlink_to(lake.path)
    for inside in (f"file://{lake.path}", lake.path.parent / "link"):
        lake.properties["warehouse"] = str(inside)
        with pytest.raises(ConfigError):
            lake.new_follower().once()


def test_a_table_of_unknown_features_is_refused(lake: Lake) -> None:
    log = lake.path / "events" / "_delta_log" / f"{1:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    log.write_text(json.dumps({"protocol": {**protocol, "writerFeatures": ["deletionVectors"]}}))
    with pytest.raises(HaltError):
        lake.follower.once()


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize("error", [CommitStateUnknownException, ConnectionError])
def test_a_commit_of_unknown_state_breaks_no_reader(
    lake: Lake, error: type[Exception], landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.follower.once()
    lake.land(day=2)
    commit = SqlCatalog.commit_table

    def lost(*given: Any) -> None:
        if landed:
            commit(*given)
        raise error

    with monkeypatch.context() as patched, suppress(error):
        patched.setattr(SqlCatalog, "commit_table", lost)
        lake.follower.once()
    lake.check(newest=False)
    lake.follower.once()
    lake.check()


def test_what_a_catalog_over_http_refuses_may_have_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setattr(RestCatalog, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(RestCatalog, "commit_table", Mock(side_effect=CommitFailedException))
    with pytest.raises(CommitStateUnknownException):
        load_catalog("headrace", type="rest", uri="http://catalog").commit_table()


@pytest.mark.parametrize("known", [True, False], ids=["it-has-looked-before", "at-its-start"])
def test_a_catalog_that_is_away_is_asked_again(lake: Lake, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = lake.follower
    if known:
        follower.once()
    lake.land()
    problems: list[list[str]] = []
    away = Mock(side_effect=ConnectionError)

    def wait(_: float) -> None:
        problems.append(follower.ready_problems())
        if len(problems) == 2:
            follower.stop()
        away_now.undo()

    monkeypatch.setattr(follower._stopping, "wait", wait)
    with pytest.MonkeyPatch.context() as away_now:
        away_now.setattr(SqlCatalog, "load_table" if known else "__init__", away)
        follower.run()
    lake.check()
    assert [bool(each) for each in problems] == [True, False]
    assert lake.metrics.lag.labels("events")._value.get() == 0


def test_the_command_ends_with_a_status(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "configure", lambda *_: structlog.get_logger())  # not for all tests behind this one
    monkeypatch.setattr(sys, "argv", ["headrace_mirror", "--once"])
    monkeypatch.setenv("HEADRACE_MIRROR__LAKE", str(lake.path))
    assert __main__.main() == EXIT_CONFIG, "there is no catalog"
    monkeypatch.setenv("HEADRACE_MIRROR__CATALOG", json.dumps(lake.properties))
    assert __main__.main() == 0
    lake.check()
    monkeypatch.setenv("HEADRACE_MIRROR__LAKE", str(tmp_path / "none"))
    with structlog.testing.capture_logs() as lines:
        assert __main__.main() == 1
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["stopped"]
    monkeypatch.delitem(sys.modules, "headrace_mirror.follower")
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    assert __main__.main() == EXIT_CONFIG, "without the extra"


@pytest.mark.kafka
@pytest.mark.spark
def test_it_shows_what_the_job_writes(runs: Runs, tmp_path: Path) -> None:
    lake = Lake(tmp_path, "lake")
    runs.sql("events", "alter table TABLE add columns (mark string)")
    runs.send(300)
    runs.run(batch_records=200)
    assert runs.erase("source = '/forward/host-1'").events > 0
    lake.follower.once()
    lake.check()
    assert "mark" in lake.catalog().load_table(("headrace", "events")).schema().column_names
