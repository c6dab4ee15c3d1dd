"""`headrace query`: what it reads, what it refuses, and that the proof fails when it must."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pytest
from arro3.core import Table
from deltalake import write_deltalake
from headrace_cli import query
from headrace_cli.errors import CommandError
from headrace_lake.tables import BATCHES, DAY, EVENTS, QUARANTINE, SCHEMAS

MOMENT = datetime(2026, 5, 6, 12, 0, 0, 123456, tzinfo=UTC)
DAY_OF_IT = date(2026, 5, 6)


def event(offset: int, partition: int = 0, **values: object) -> dict:
    place = {"topic_id": "id", "partition": partition, "offset": offset, "landed_at": MOMENT, DAY: DAY_OF_IT}
    return {"event_id": f"d.{offset}", "body": '{"a":1}', "payload": b"\xff", "event_time": MOMENT, **place, **values}


def reject(offset: int, partition: int = 0) -> dict:
    place = {"topic_id": "id", "partition": partition, "offset": offset, "landed_at": MOMENT, DAY: DAY_OF_IT}
    return {"raw": b"\xff", "reason": "bad_json", **place}


def batch(start: int, end: int, events: int, quarantined: int = 0, partition: int = 0, **values: int) -> dict:
    counts = {
        "records": events + quarantined,
        "events": events,
        "duplicates": 0,
        "quarantined": quarantined,
        "skipped": 0,
    }
    whose = {"epoch": 1, "batch": start, "topic_id": "id", "partition": partition, "landed_at": MOMENT}
    return {**whose, "from": start, "to": end, **counts, **values}


def make(lake: Path, **rows: list[dict]) -> None:
    """The three tables with the columns of the landing job; `rows` by table are added. Made without Spark."""
    for name, schema in SCHEMAS.items():
        append(
            lake / name, [(field.name, field.dataType.simpleString()) for field in schema.fields], rows.get(name, [])
        )


def append(table: Path, columns: list[tuple[str, str]], rows: list[dict]) -> None:
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        kinds = {"timestamp": "timestamptz", "binary": "blob"}
        declared = ", ".join(f'"{name}" {kinds.get(kind, kind)}' for name, kind in columns)
        connection.execute(f"create table t ({declared})")
        for row in rows:
            marks = ", ".join("?" for _ in columns)
            connection.execute(f"insert into t values ({marks})", [row.get(name) for name, _ in columns])
        partitioned = [DAY] if DAY in dict(columns) else None
        arrow = Table.from_arrow(connection.table("t"))
    write_deltalake(str(table), arrow, partition_by=partitioned, mode="append", schema_mode="merge")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    made = tmp_path / "lake"
    make(
        made,
        events=[event(0), event(1), event(3), event(0, 1)],
        quarantine=[reject(2)],
        batches=[batch(0, 2, 2), batch(2, 4, 1, 1), batch(0, 1, 1, partition=1)],
    )
    return made


def test_rows_come_as_python_has_them(lake: Path) -> None:
    (row,) = query.run('select * from events where "offset" = 3', lake)
    assert list(row) == SCHEMAS[EVENTS].names
    assert (row["event_time"], row["payload"], row[DAY]) == (MOMENT, b"\xff", DAY_OF_IT)
    assert query.run("select count(*) as n from batches", str(lake)) == [{"n": 3}]


def test_json_has_times_in_iso_and_bytes_in_base64(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select event_time, payload, day, 'nan'::double as x, [1, null] as l, 1 as a, 2 as a from events where \"offset\" = 3"
    assert query.query(sql, lake, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"event_time": "2026-05-06T12:00:00.123456+00:00", "payload": "/w==", "day": "2026-05-06", "x": "nan",
         "l": [1, None], "a": 1, "a_1": 2}
    ]  # fmt: skip


def test_empty_tables_are_there_with_their_columns(tmp_path: Path) -> None:
    make(tmp_path)
    assert query.run("select * from events", tmp_path) == []
    columns = query.run("select column_name from (describe events)", tmp_path)
    assert [row["column_name"] for row in columns] == SCHEMAS[EVENTS].names
    assert all(row["ok"] for row in query.exactly_once(tmp_path))


def test_a_column_that_came_later_is_null_before(lake: Path) -> None:
    later = [("event_id", "string"), ("added", "string"), (DAY, "date")]
    append(lake / EVENTS, later, [{"event_id": "d.9", "added": "x", DAY: DAY_OF_IT}])
    assert query.run("select added from events where event_id = 'd.9'", lake) == [{"added": "x"}]
    assert query.run("select count(*) as n from events where added is null", lake) == [{"n": 4}]


@pytest.mark.parametrize(
    "sql",
    [
        "delete from events",
        "create table x (a int)",
        "copy events to 'x.csv'",
        "explain analyze copy (select 1) to 'x.csv'",
        "attach 'x.db'",
        "set memory_limit = '1GB'",
        "select 1; select 2",
        "select 1; drop view events",
        "",
        "install httpfs",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/hostname')",
        "select * from glob('/*')",
    ],
)
def test_anything_but_one_query_of_the_lake_is_refused(lake: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake)
    before = sorted(lake.rglob("*"))
    with pytest.raises(CommandError) as refused:
        query.run(sql, lake)
    assert "\n" not in str(refused.value)
    assert sorted(lake.rglob("*")) == before


@pytest.mark.parametrize(
    "sql", ["selct 1", "select * from nothing", "select nothing from events", "select 1/0 || from"]
)
def test_bad_sql_is_one_line(lake: Path, sql: str) -> None:
    with pytest.raises(CommandError) as refused:
        query.run(sql, lake)
    assert "\n" not in str(refused.value)


def test_no_lake_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="There are no tables in"):
        query.run("select 1", tmp_path / "nowhere")


def test_either_sql_or_a_name(lake: Path) -> None:
    with pytest.raises(CommandError, match="Give either SQL or --named"):
        query.query(None, lake)
    with pytest.raises(CommandError, match="There is no query named x; there is: exactly-once"):
        query.query(None, lake, named="x")


def test_the_proof_holds(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.query(None, lake, named="exactly-once", as_json=True) == 0
    proof = json.loads(capsys.readouterr().out)
    assert [row["ok"] for row in proof] == [True] * 6
    assert proof[-1]["detail"].startswith("ranges 3, partitions 2, records 5, events 4, ")


def test_rows_of_a_batch_under_way_are_no_contradiction(lake: Path) -> None:
    make(lake, events=[event(4), event(1, 1), event(0, 2)])
    proof = query.exactly_once(lake)
    assert all(row["ok"] for row in proof)
    assert proof[-1]["detail"].endswith("rows_of_a_batch_under_way 3")


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a hole": (lambda lake: make(lake, batches=[batch(5, 6, 0, records=0)]), "no hole"),
    "an overlap": (lambda lake: make(lake, batches=[batch(3, 5, 0, records=0)]), "no hole"),
    "a range twice": (lambda lake: make(lake, batches=[batch(0, 2, 2)]), "no hole"),
    "an empty range": (lambda lake: make(lake, batches=[batch(4, 4, 0)]), "no hole"),
    "a record uncounted": (lambda lake: make(lake, batches=[batch(4, 6, 0, records=1)]), "records ="),
    "more records than offsets": (lambda lake: make(lake, batches=[batch(4, 5, 0, 2)]), "records ="),
    "a row lost": (lambda lake: make(lake, batches=[batch(4, 6, 2)], events=[event(4)]), "the events table"),
    "a row doubled": (lambda lake: make(lake, events=[event(1)]), "the events table"),
    "one lost, one doubled": (
        lambda lake: make(lake, batches=[batch(4, 6, 2)], events=[event(4), event(4)]),
        "the events table",
    ),
    "a quarantined row lost": (lambda lake: make(lake, batches=[batch(4, 5, 0, 1)]), "the quarantine table"),
    "a quarantined row doubled": (lambda lake: make(lake, quarantine=[reject(2)]), "the quarantine table"),
    "one in both tables, one in none": (
        lambda lake: make(lake, batches=[batch(4, 6, 1, 1)], events=[event(4)], quarantine=[reject(4)]),
        "in both",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_proof_fails_on(lake: Path, name: str) -> None:
    fault, check = FAULTS[name]
    fault(lake)
    proof = query.exactly_once(lake)
    assert [row for row in proof if not row["ok"] and check in row["check"]], proof
    assert proof[-1]["ok"] is False
    assert query.query(None, lake, named="exactly-once") == 1


def test_tables_are_named_as_the_job_names_them() -> None:
    assert {EVENTS, QUARANTINE, BATCHES} < set(query.TABLES)
