"""Promoted columns and the body as VARIANT: what a setting may ask for, what becomes of a record, and existing tables."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_cli.verbs import query
from headrace_common.operations.errors import ConfigError
from headrace_lake.commands import migrate
from headrace_lake.configuration import promotion
from headrace_lake.configuration.promotion import Promotion, split
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.rows import decode
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout, upgrade
from headrace_lake.tables.layout import EVENTS
from headrace_lake.tables.shape import BODY_VARIANT, Shape, of_table, parse_all, settled
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.lake.records import LANDED, TOPICS, Record, frame
from tests.lake.runs import Runs

ALL = """
    body.status as status int, body['a.b'].c[1] as ab_c string, body.big as big bigint, body.share as share double,
    body.price as price decimal(10,2), body.ok as ok boolean, body.day as on_day date, body.at as at timestamp
"""


def promotions(text: str = ALL) -> tuple[Promotion, ...]:
    return parse_all(split(text), layout.SCHEMAS[EVENTS].names, None)


def test_promotions_are_read_and_written_alike() -> None:
    found = promotions()
    assert [str(promotion) for promotion in found] == [
        "body.status as status int", "body['a.b'].c[1] as ab_c string", "body.big as big bigint",
        "body.share as share double", "body.price as price decimal(10,2)", "body.ok as ok boolean",
        "body.day as on_day date", "body.at as at timestamp",
    ]  # fmt: skip
    shape = Shape(found, variant=True)
    assert of_table(shape.properties) == shape
    assert of_table({}) == Shape()
    assert promotions("body.A as Status INTEGER ,body.b as b long") == promotions(
        "body.A as status int, body.b as b bigint"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("status int", "is not of the form `body.path as name type`"),
        ("body as b string", "is not of the form"),
        ("body.a..b as b string", "is not a path"),
        ("body.a[x] as b string", "is not a path"),
        ("body.a as b-c string", "is not of the form"),
        ("body.a as 1b string", "is not a column name"),
        ("body.a as b money", "`money` is none of string, boolean, int"),
        ("body.a as b decimal(39,2)", "at most 38 digits"),
        ("body.a as b decimal(5,6)", "at most 38 digits"),
        ("body.a as _Headrace_fault string", "`_headrace_fault` begins with _headrace_"),
        ("body.a['*'] as b string", "nothing finds the name *"),
        ("body[99999999999999999999] as b string", "is not a path"),
        ("body.a as Body string", "has a column body of its own"),
        ("body.a as body_variant string", "has a column body_variant of its own"),
        ("body.a as b string, body.c as b string", "cannot be both `body.a as b string` and `body.c as b string`"),
    ],
)
def test_what_cannot_be_promoted_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        promotions(text)
    assert said in str(refused.value)


def test_settings_and_table_have_to_agree() -> None:
    names = layout.SCHEMAS[EVENTS].names
    status, other = promotions("body.status as status int"), promotions("body.other as other int")
    assert settled(LakeSettings(), None, names) == Shape()
    assert settled(LakeSettings(promote="body.status as status int", body="variant"), None, names) == Shape(
        status, True
    )
    table = Shape(status, variant=True)
    assert settled(LakeSettings(), table, names) == table, "no word in the settings: as it is"
    assert settled(LakeSettings(promote="body.status as status int", body="variant"), table, names) == table
    both = Shape((*status, *other))
    swapped = LakeSettings(promote="body.other as other int,body.status as status int")
    assert settled(swapped, both, names) == both
    for settings, there, said in (
        (
            LakeSettings(promote="body.other as other int"),
            table,
            r"it has body.status as status int\): stop the job, run",
        ),
        (LakeSettings(promote="body.other as other int"), Shape(), r"it has none\).*python -m headrace_lake migrate"),
        (LakeSettings(body="string"), table, "LAKE__BODY is string and the events table was made for variant"),
        (LakeSettings(body="variant"), Shape(), "LAKE__BODY is variant and the events table was made for string"),
    ):
        with pytest.raises(ConfigError, match=said):
            settled(settings, there, names)


BODIES: list[tuple[bytes, dict[str, Any]]] = [
    (
        b'{"status": 200, "a.b": {"c": [1, "two"]}, "big": 9223372036854775807, "share": 0.25, "price": 12.30, "ok": true,'
        b' "day": "2026-05-06", "at": "2026-05-06T07:08:09.5+02:00"}',
        {
            "status": 200, "ab_c": "two", "big": 2**63 - 1, "share": 0.25, "price": decimal.Decimal("12.30"), "ok": True,
            "on_day": datetime.date(2026, 5, 6), "at": datetime.datetime(2026, 5, 6, 5, 8, 9, 500_000),
        },
    ),
    (b'{"status": "404", "a.b": {"c": [1, {"x": 1}]}, "ok": "false"}', {"status": 404, "ab_c": '{"x":1}', "ok": False}),
    (
        b'{"status": 3000000000, "big": 1e400, "price": 99999999999, "ok": 7, "day": "-0044-03-15", "at": "+012026-01-01"}',
        {},
    ),
    (b'{"status": null, "a.b": [], "share": "much", "day": "2026-02-30"}', {}),
    (b'{"status": 1, "status": 2}', {"status": 1}),
    (b"[1, 2]", {}),
    (b'"text"', {}),
    (b"{not json", {}),
    (b"", {}),
    (b'{"status": 5, "deep": ' + b"[" * 300 + b"]" * 300 + b"}", {"status": 5}),
]  # fmt: skip


@pytest.mark.spark
def test_promoted_columns_hold_what_fits_and_never_throw(spark: SparkSession) -> None:
    shape = Shape(promotions())
    records = [Record(value=body) for body, _ in BODIES]
    found = decode.events(frame(spark, records), TOPICS, LANDED, shape).orderBy("offset").collect()
    for (body, expected), row in zip(BODIES, found, strict=True):
        assert row["body"] == body.decode(), "the body stays as it was"
        assert {name: row[name] for name in shape.columns} == dict.fromkeys(shape.columns) | expected, body


EXACT = [
    b'{"b": 1, "a": [true, null, "x\\n", 1.50, 12345678901234567890123456789012345678], "-0.5": -0.5}',
    b'{"uuid": "7e3a-4e5f", "n": -7}', b"[]", b'"text"', b"17", b'{"\\u00e4": "\\u2028"}',
]  # fmt: skip
INEXACT = [
    b'{"a": 1e2}', b'{"a":-1.5E-7}', b"1e400", b"[0, 1e1]", b'{"a":123456789012345678901234567890123456789}', b'{"a":-0}',
    b"[-0.0]", b'{"a": "\\ud800"}', b'{"a": 1, "a": 2}', b"{not json", b"", b" ",
]  # fmt: skip


@pytest.mark.spark
def test_nothing_is_lost_in_variant(spark: SparkSession) -> None:
    """A text that VARIANT may not hold exactly stays beside it."""
    records = [Record(value=body) for body in (*EXACT, *INEXACT)]
    decoded = decode.events(frame(spark, records), TOPICS, LANDED, Shape(variant=True))
    rows = decoded.selectExpr("offset", "body", f"to_json({BODY_VARIANT}) as value").orderBy("offset").collect()
    for body, row in zip(EXACT, rows[: len(EXACT)], strict=True):
        assert row["body"] is None, body
        assert json.loads(row["value"], parse_float=decimal.Decimal) == json.loads(body, parse_float=decimal.Decimal)
    for body, row in zip(INEXACT, rows[len(EXACT) :], strict=True):
        assert row["body"] == body.decode()


@pytest.mark.spark
def test_new_tables_may_have_columns_of_every_kind_and_so_may_existing_ones(
    spark: SparkSession, tmp_path: Path, empty_tables: Path
) -> None:
    kinds = [*dict.fromkeys(promotion._KINDS.values()), "decimal(10,2)"]
    asked = ", ".join(f"body.a as of_{number} {kind}" for number, kind in enumerate(kinds))
    shape = migrate.prepare(Storage(spark), LakeSettings(path=str(tmp_path), promote=asked))
    assert [each.kind for each in shape.promoted] == kinds
    older = Path(shutil.copytree(empty_tables, tmp_path / "older"))
    assert migrate.migrate(spark, LakeSettings(path=str(older)), split(asked), variant=False) == shape


@pytest.mark.spark
def test_a_table_that_cannot_be_made_says_why(spark: SparkSession, tmp_path: Path) -> None:
    statement = (
        f"CREATE TABLE delta.`{tmp_path}/t` (ok boolean) USING delta TBLPROPERTIES ('{layout.STATISTICS}' = 'ok')"
    )
    with pytest.raises(PySparkException, match=r"(?i)boolean"):
        layout.make(Storage(spark), f"{tmp_path}/t", statement)


@pytest.mark.spark
def test_existing_tables_gain_the_columns(spark: SparkSession, tmp_path: Path, empty_tables: Path) -> None:
    def land(shape: Shape, body: bytes) -> None:
        rows = decode.events(frame(spark, [Record(value=body)]), TOPICS, LANDED, shape)
        rows = rows.select(*layout.columns(EVENTS, shape))
        rows.write.format("delta").mode("append").save(str(tmp_path / EVENTS))

    plain = LakeSettings(path=str(tmp_path))
    asked = LakeSettings(path=str(tmp_path), promote="body.status as status int")
    with pytest.raises(HaltError, match="there are no tables in"):
        migrate.migrate(spark, plain, (), variant=False)
    shutil.copytree(empty_tables, tmp_path, dirs_exist_ok=True)
    land(migrate.prepare(Storage(spark), plain), b'{"status": 1}')
    with pytest.raises(ConfigError, match=r"LAKE__PROMOTE and the events table disagree \(it has none\)"):
        migrate.prepare(Storage(spark), asked)

    shape = migrate.migrate(spark, plain, ["body.status as status int"], variant=False)
    assert shape == migrate.prepare(Storage(spark), asked) == migrate.prepare(Storage(spark), plain)
    (field,) = [each for each in DeltaTable(str(tmp_path / EVENTS)).schema().fields if each.name == "status"]
    assert field.metadata["comment"] == "LAKE__PROMOTE: body.status as status int"
    land(shape, b'{"status": 2}')
    shape = migrate.migrate(spark, asked, ["body.name as name string"], variant=True)
    land(shape, b'{"status": 3, "name": "x"}')
    assert migrate.migrate(spark, plain, (), variant=False) == shape, "again: nothing changes"
    with pytest.raises(HaltError, match="has a column name of the type string: choose another name"):
        migrate.migrate(spark, asked, ["body.name as name int"], variant=False)
    with pytest.raises(ConfigError, match="cannot be both"):
        migrate.migrate(spark, plain, ["body.name as name int"], variant=False)

    wanted = [(1, None), (2, None), (3, "x")]
    by_spark = spark.read.format("delta").load(str(tmp_path / EVENTS))
    assert sorted(tuple(row) for row in by_spark.selectExpr("coalesce(status, 1)", "name").collect()) == wanted
    texts = by_spark.selectExpr(f"coalesce(body, to_json({BODY_VARIANT})) as text").collect()
    assert sorted(json.loads(text)["status"] for (text,) in texts) == [1, 2, 3]
    by_deltalake = DeltaTable(str(tmp_path / EVENTS)).to_pyarrow_table(columns=["status", "name"]).to_pylist()
    assert sorted((row["status"] or 1, row["name"]) for row in by_deltalake) == wanted
    by_duckdb = query.run("select coalesce(status, 1) as status, name from events order by 1", tmp_path)
    assert [tuple(row.values()) for row in by_duckdb] == wanted
    assert len(query.run("select * from events", tmp_path)) == 3
    skipped_by = DeltaTable(str(tmp_path / EVENTS)).metadata().configuration["delta.dataSkippingStatsColumns"]
    assert skipped_by.endswith(",status,name")

    shape = migrate.migrate(spark, asked.model_copy(update={"body": "string"}), (), variant=False)
    assert shape == Shape(promotions("body.status as status int")), "the settings leave one out: it is filled no more"
    land(shape, b'{"status": 4, "name": "y"}')
    assert len(query.run("select * from events where body is not null and status = 4 and name is null", tmp_path)) == 1


@pytest.mark.spark
@pytest.mark.kafka
def test_a_promoted_column_keeps_the_name_that_a_later_version_gives_to_one_of_its_own(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older version of this test has no `content_type`."""
    promote = "body.n as content_type int"
    shutil.rmtree(runs.lake)
    with monkeypatch.context() as older:
        before = [field for field in layout.SCHEMAS[EVENTS].fields if field.name != "content_type"]
        older.setitem(layout.SCHEMAS, EVENTS, StructType(before))
        migrate.prepare(Storage(runs.spark), runs.settings(promote=promote).lake)
    monkeypatch.setattr(upgrade, "_LATER", {EVENTS: ("content_type",)})

    def kept() -> None:
        (field,) = [each for each in DeltaTable(str(runs.lake / EVENTS)).schema().fields if each.name == "content_type"]
        assert (field.type.type, field.metadata["comment"]) == ("integer", f"LAKE__PROMOTE: {promote}")

    for number, settings in enumerate(({}, {"promote": promote})):
        runs.send(50, mark=f"m{number}")
        runs.run(**settings)
        assert runs.said("columns left out") == [{"table": EVENTS, "columns": ["content_type"]}]
        kept()
    assert runs.proven()
    removed = runs.settings(promote="body.mark as mark string").lake
    migrate.migrate(runs.spark, removed, (), variant=False)
    shape = migrate.prepare(Storage(runs.spark), removed)
    rows = decode.events(frame(runs.spark, [Record(value=b'{"n": 7}')]), TOPICS, LANDED, shape)
    rows.select(*layout.columns(EVENTS, shape)).write.format("delta").mode("append").save(str(runs.lake / EVENTS))
    kept()
    for settings, more in ({"promote": promote}, []), ({}, [promote]):
        shape = migrate.migrate(runs.spark, runs.settings(None, **settings).lake, more, variant=False)
        assert Promotion.parse(promote) in shape.promoted
    with pytest.raises(ConfigError, match="has a column protocol of its own"):
        migrate.migrate(runs.spark, runs.settings().lake, ["body.n as protocol string"], variant=False)


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["_frame", "of_table"])
def test_columns_that_two_migrations_add_at_once_are_both_filled(
    spark: SparkSession, tmp_path: Path, empty_tables: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another migration comes in between whenever this one has read what the table has."""
    settings = LakeSettings(path=str(tmp_path))
    shutil.copytree(empty_tables, tmp_path, dirs_exist_ok=True)
    act = getattr(migrate, moment)

    def another_first(*given: Any) -> Any:
        found = act(*given)
        monkeypatch.setattr(migrate, moment, act)
        migrate.migrate(spark, settings, ["body.two as two int"], variant=True)
        return found

    monkeypatch.setattr(migrate, moment, another_first)
    migrate.migrate(spark, settings, ["body.one as one int"], variant=False)
    shape = migrate.prepare(Storage(spark), settings)
    assert (sorted(shape.columns), shape.variant) == (["body_variant", "one", "two"], True)
    assert {*shape.columns} <= {*spark.read.format("delta").load(str(tmp_path / EVENTS)).columns}
    skipped_by = DeltaTable(str(tmp_path / EVENTS)).metadata().configuration["delta.dataSkippingStatsColumns"]
    assert {"one", "two"} <= {*skipped_by.split(",")}
