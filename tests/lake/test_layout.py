"""What the tables say of themselves: their protocol, statistics and comments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_common.operations.errors import ConfigError
from headrace_lake.configuration.places import within
from headrace_lake.configuration.settings import LakeSettings, location
from headrace_lake.spark.catalog import register
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import altered, layout
from headrace_lake.tables.layout import ABOUT, BATCHES, EVENTS, GAPS, QUARANTINE, SCHEMAS, STATISTICS
from headrace_lake.tables.properties import strange_features
from pydantic import ValidationError
from pyspark.sql import SparkSession

from tests.lake.lander import QUICK_START

NAMES = (EVENTS, QUARANTINE, BATCHES, GAPS)


def commits(lake: Path) -> dict[str, int]:
    return {name: len(list((lake / name / "_delta_log").glob("*.json"))) for name in NAMES}


def said(lake: Path, name: str) -> dict[str, str | None]:
    """Column -> comment, as a reader without Spark sees it."""
    return {field.name: field.metadata.get("comment") for field in DeltaTable(str(lake / name)).schema().fields}


def comments(name: str) -> dict[str, str]:
    return {field.name: field.metadata["comment"] for field in SCHEMAS[name].fields}


def statistics(lake: Path, name: str) -> str:
    return DeltaTable(str(lake / name)).metadata().configuration[STATISTICS]


@pytest.fixture
def lake(tmp_path: Path, empty_tables: Path) -> Path:
    return Path(shutil.copytree(empty_tables, tmp_path / "lake"))


def test_every_column_has_a_comment_that_fits_into_a_table() -> None:
    for name, schema in SCHEMAS.items():
        assert ABOUT[name]
        for field in schema.fields:
            text = field.metadata["comment"]
            assert text
            assert not set(text) & set("|\n`"), (name, field.name)


@pytest.mark.spark
def test_new_tables_need_the_oldest_readers_and_writers_only(lake: Path) -> None:
    for name in NAMES:
        table = DeltaTable(str(lake / name))
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), name
        assert not protocol.reader_features
        assert not protocol.writer_features
        assert table.metadata().description == ABOUT[name]
        assert said(lake, name) == comments(name)
    assert statistics(lake, EVENTS).startswith("stream,source,event_time,")


@pytest.mark.spark
@pytest.mark.parametrize("known", [True, False], ids=["", "of an unknown Delta"])
def test_only_properties_that_differ_are_set(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(altered, "stepwise", lambda _: known)
    path, before = str(lake / GAPS), commits(lake)
    wanted = {"headrace.test": """it's "quoted" \\""", "comment": "another", STATISTICS: "device,source"}
    for _ in range(2):
        altered.set_properties(spark, path, wanted)
    assert commits(lake) == {**before, GAPS: before[GAPS] + 1}
    assert altered.properties_of(spark, path).items() >= wanted.items()
    assert DeltaTable(path).metadata().configuration["headrace.test"] == wanted["headrace.test"]


@pytest.mark.spark
def test_the_change_data_feed_is_on_if_asked_for_and_changes_no_reader(spark: SparkSession, lake: Path) -> None:
    before = commits(lake)
    for change_feed in (True, True, False):
        layout.create(Storage(spark), str(lake), change_feed=change_feed)
    assert commits(lake) == {name: count + 1 for name, count in before.items()}, "it stays on, without more commits"
    layout.create(Storage(spark), str(lake / "new"), change_feed=True)
    for name in (*NAMES, *(f"new/{name}" for name in NAMES)):
        table = DeltaTable(str(lake / name))
        assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
        protocol = table.protocol()
        assert protocol.min_reader_version == 1
        assert not protocol.reader_features
        assert "changeDataFeed" in (protocol.writer_features or ()) or protocol.min_writer_version == 4
        assert strange_features({"writerFeatures": protocol.writer_features}) == []


@pytest.mark.parametrize("name", ["a b", "a.b.c", "a;drop", "`a`", ".a"])
def test_a_schema_is_a_plain_name(name: str) -> None:
    with pytest.raises(ValidationError, match="catalog_schema"):
        LakeSettings(catalog_schema=name)


@pytest.mark.spark
def test_spark_leaves_no_folder_where_it_is_started(spark: SparkSession) -> None:
    place = location(str(spark.conf.get("spark.sql.warehouse.dir")))
    assert not within(place, str(Path.cwd()))


@pytest.mark.spark
def test_a_catalog_that_spark_does_not_have_is_refused(spark: SparkSession, lake: Path) -> None:
    for name, reason in (
        ("logs", "no catalog that outlives it"),
        ("unity.logs", "the catalog unity, which Spark does not"),
    ):
        with pytest.raises(ConfigError, match=reason):
            register(spark, str(lake), name, SCHEMAS)


IN_A_METASTORE = """
import json, sys
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import LogSettings
from headrace_lake.configuration.places import within
from headrace_lake.configuration.settings import LakeSettings, location
from headrace_lake.spark.catalog import register
from headrace_lake.spark.engine import session
from headrace_lake.tables.layout import SCHEMAS
from tests.lake.lander import CLASSES

lake, elsewhere, folder, jars = sys.argv[1:]
options = {
    "spark.sql.catalogImplementation": "hive", "spark.sql.warehouse.dir": f"{folder}/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
}
spark = session(LakeSettings(jars=jars, master="local[1]", classes=CLASSES, spark=options), LogSettings())
spark.sql("create schema mixed")
spark.sql(f"create table mixed.gaps using parquet location '{folder}/foreign' as select 1 as n")
spark.sql("create schema viewed")
spark.sql("create view viewed.events as select 1 as n")
said = []
for path, schema in ((lake, "logs"), (lake, "logs"), (elsewhere, "logs"), (lake, "mixed"), (lake, "viewed")):
    try:
        register(spark, path, schema, SCHEMAS)
        said.append("")
    except ConfigError as error:
        said.append(str(error))
names = sorted(row.tableName for row in spark.sql("show tables in logs").collect())
comments = {row.col_name: row.comment for row in spark.sql("describe logs.events").collect()}
spark.sql("drop table logs.events")
print(json.dumps({"said": said, "names": names, "comment": comments["stream"]}))
spark.stop()
"""


@pytest.mark.spark
def test_names_in_a_metastore(lake: Path, empty_tables: Path, tmp_path: Path) -> None:
    """An embedded Hive metastore: names are made once, nothing is taken that is another's, a dropped name drops no row."""
    elsewhere = shutil.copytree(empty_tables, tmp_path / "elsewhere")
    before = commits(lake)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_METASTORE, str(lake), str(elsewhere), str(tmp_path), str(jars("spark"))],
        env={**os.environ, "JAVA_HOME": str(java_home()), "JDK_JAVA_OPTIONS": QUICK_START,
             "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=tmp_path, capture_output=True, text=True, timeout=1400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    first, again, other, mixed, viewed = found["said"]
    assert first == again == ""
    assert f"logs.events in the catalog is file:{lake / EVENTS}, not file:{elsewhere / EVENTS}: drop that name" in other
    assert "mixed.gaps in the catalog is a table of the format parquet" in mixed
    assert "viewed.events in the catalog is something that cannot be read" in viewed
    assert found["names"] == sorted(NAMES)
    assert found["comment"] == comments(EVENTS)["stream"]
    assert commits(lake) == before, "a name is no commit"
    assert DeltaTable(str(lake / EVENTS)).version() == 0
