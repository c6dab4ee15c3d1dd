"""`headrace query`: what it reads, what it refuses, and that the proof fails when it must."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from arro3.core import Table
from deltalake import write_deltalake
from headrace_cli import query
from headrace_cli.errors import CommandError
from headrace_lake.tables import BATCHES, DAY, EVENTS, GAPS, QUARANTINE, SCHEMAS

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


def gap(start: int, end: int | None, rows: int = 0, partition: int = 0, reason: str = "retention") -> dict:
    whose = {"topic": "t", "topic_id": "id", "partition": partition, "epoch": 2, "landed_at": MOMENT}
    return {"reason": reason, "from": start, "to": end, "rows": rows, "covered": False, **whose}


def make(lake: Path, **rows: list[dict]) -> None:
    """The tables with the columns of the landing job; `rows` by table are added. Made without Spark."""
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
    assert [row["ok"] for row in proof] == [True] * 7
    assert proof[-1]["detail"].startswith("ranges 3, partitions 2, records 5, events 4, ")


def test_rows_of_a_batch_under_way_are_no_contradiction(lake: Path) -> None:
    make(lake, events=[event(4), event(1, 1), event(0, 2)])
    proof = query.exactly_once(lake)
    assert all(row["ok"] for row in proof)
    assert proof[-1]["detail"].endswith("rows_of_a_batch_under_way 3")


GAPS_EXPLAINED: dict[str, Callable[[Path], None]] = {
    "between two ranges": lambda lake: make(lake, gaps=[gap(4, 9)], batches=[batch(9, 10, 1)], events=[event(9)]),
    "two in a row": lambda lake: make(lake, gaps=[gap(4, 6), gap(6, 9)], batches=[batch(9, 10, 1)], events=[event(9)]),
    "at the end": lambda lake: make(lake, gaps=[gap(4, 9)]),
    "before the first range": lambda lake: make(
        lake, gaps=[gap(0, 7, partition=2)], batches=[batch(7, 8, 1, partition=2)], events=[event(7, 2)]
    ),
    "of a partition never landed": lambda lake: make(lake, gaps=[gap(0, 7, partition=3)]),
    "with rows of a batch half done": lambda lake: make(
        lake, gaps=[gap(4, 9, rows=3)], batches=[batch(9, 10, 1)],
        events=[event(4), event(6), event(9)], quarantine=[reject(5)],
    ),
    "a topic made anew": lambda lake: make(lake, gaps=[gap(4, None, rows=1, reason="recreated")], events=[event(7)]),
    "a topic made anew, nothing landed": lambda lake: make(
        lake, gaps=[{**gap(0, None, reason="recreated"), "partition": None, "topic_id": "other"}]
    ),
    "a Logjam gap": lambda lake: make(
        lake, gaps=[{**gap(0, 0), "reason": "logjam", "from": None, "to": None, "offset": 3, "from_sequence": 1}]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GAPS_EXPLAINED)
def test_an_accepted_gap_is_no_contradiction(lake: Path, name: str) -> None:
    GAPS_EXPLAINED[name](lake)
    proof = query.exactly_once(lake)
    assert all(row["ok"] for row in proof), proof


def test_tables_of_a_version_without_gaps_are_proven_too(lake: Path) -> None:
    shutil.rmtree(lake / GAPS)
    assert all(row["ok"] for row in query.exactly_once(lake))
    assert query.run(query.QUERIES["gaps"], lake) == []


def test_named_queries_answer_what_people_ask_first(lake: Path) -> None:
    later = MOMENT + timedelta(hours=1)
    make(
        lake,
        events=[event(4, source="/forward/a", received_time=at) for at in (MOMENT, MOMENT, later)],
        quarantine=[{**reject(5), "protocol": "forward", "received_time": later}],
        batches=[{**batch(4, 9, 3, 1), "topic": "t", "duplicates": 1}],
        gaps=[gap(9, 12, rows=1), {**gap(0, 0), "reason": "logjam", "from": None, "to": None, "device": 7}],
    )
    hour = MOMENT.replace(minute=0, second=0, microsecond=0)
    hours = [row for row in query.run(query.QUERIES["hours"], lake) if row["source"]]
    assert hours == [
        {"hour": hour, "source": "/forward/a", "events": 2},
        {"hour": hour + timedelta(hours=1), "source": "/forward/a", "events": 1},
    ]
    assert query.run(query.QUERIES["resends"], lake) == [{"hour": hour, "topic": "t", "events": 3, "collapsed": 1}]
    (_, row) = query.run(query.QUERIES["quarantine"], lake)
    assert row == {"reason": "bad_json", "protocol": None, "records": 1, "first": None, "last": None}
    found = query.run(query.QUERIES["gaps"], lake)
    assert [(row["reason"], row["from"], row["to"], row["lost"], row["device"]) for row in found] == [
        ("retention", 9, 12, 2, None), ("logjam", None, None, None, 7),
    ]  # fmt: skip
    for name in query.QUERIES:
        assert query.query(None, lake, named=name) == 0


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a hole": (lambda lake: make(lake, batches=[batch(5, 6, 0, records=0)]), "no hole"),
    "an overlap": (lambda lake: make(lake, batches=[batch(3, 5, 0, records=0)]), "no hole"),
    "a range twice": (lambda lake: make(lake, batches=[batch(0, 2, 2)]), "no hole"),
    "a hole of which a gap explains the beginning": (
        lambda lake: make(lake, gaps=[gap(4, 7)], batches=[batch(8, 9, 0, records=0)]), "no hole",
    ),
    "a hole of which a gap explains the end": (
        lambda lake: make(lake, gaps=[gap(6, 9)], batches=[batch(9, 10, 0, records=0)]), "no hole",
    ),
    "a hole of another partition": (
        lambda lake: make(lake, gaps=[gap(4, 8, partition=1)], batches=[batch(8, 9, 0, records=0)]), "no hole",
    ),
    "a gap over what was landed": (lambda lake: make(lake, gaps=[gap(3, 9)]), "no hole"),
    "a gap twice": (lambda lake: make(lake, gaps=[gap(4, 9), gap(4, 9)]), "no hole"),
    "a topic that lives on after it was made anew": (
        lambda lake: make(lake, gaps=[gap(4, None, reason="recreated")], batches=[batch(9, 10, 0, records=0)]), "no hole",
    ),
    "a row in a gap": (lambda lake: make(lake, gaps=[gap(4, 9)], events=[event(5)]), "the gaps hold"),
    "a row in a gap, doubled": (
        lambda lake: make(lake, gaps=[gap(4, 9, rows=2)], events=[event(5), event(5)]), "the gaps hold",
    ),
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
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_proof_fails_on(lake: Path, name: str) -> None:
    fault, check = FAULTS[name]
    fault(lake)
    proof = query.exactly_once(lake)
    assert [row for row in proof if not row["ok"] and check in row["check"]], proof
    assert proof[-1]["ok"] is False
    assert query.query(None, lake, named="exactly-once") == 1


def test_tables_are_named_as_the_job_names_them() -> None:
    assert {EVENTS, QUARANTINE, BATCHES, GAPS} == set(query.TABLES)
