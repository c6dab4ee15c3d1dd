"""`headrace query`: what it reads, what it refuses, and that the proof fails when it must."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, TableFeatures, Transaction, write_deltalake
from headrace_cli import console
from headrace_cli.ground import CommandError
from headrace_cli.verbs import query
from headrace_lake.tables import erasures
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.fence import REPLAYED, claim_of, transaction
from headrace_lake.tables.layout import ABOUT, BATCHES, DAY, DUPLICATES, EVENTS, GAPS, QUARANTINE, SCHEMAS
from headrace_lake.tables.properties import APP_ID, ERASED_APP, RETAINED_APP
from headrace_reader import against_kafka
from headrace_reader.address import trouble
from headrace_reader.proof import exactly_once
from headrace_reader.tables import TABLES, connect, rows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from rich.console import Console

MOMENT = datetime(2026, 5, 6, 12, 0, 0, 123456, tzinfo=UTC)
DAY_OF_IT = date(2026, 5, 6)


def place(offset: int, partition: int, values: dict[str, Any]) -> dict[str, Any]:
    return {"topic_id": "id", "partition": partition, "offset": offset, "landed_at": MOMENT, DAY: DAY_OF_IT, **values}


def event(offset: int, partition: int = 0, **values: object) -> dict[str, Any]:
    rest = {"event_id": f"d.{offset}", "body": '{"a":1}', "payload": b"\xff", "event_time": MOMENT}
    return {**rest, **place(offset, partition, values)}


def reject(offset: int, partition: int = 0, **values: object) -> dict[str, Any]:
    return {"raw": b"\xff", "reason": "bad_json", **place(offset, partition, values)}


def batch(
    start: int, end: int, events: int, quarantined: int = 0, partition: int = 0, **values: object
) -> dict[str, Any]:
    whose = {"epoch": 1, "batch": start, "topic_id": "id", "partition": partition, "landed_at": MOMENT}
    return {**whose, "from": start, "to": end, "records": events + quarantined, **values}


def gap(start: int, end: int | None, rows: int = 0, **values: object) -> dict[str, Any]:
    whose = {"topic": "t", "topic_id": "id", "partition": 0, "epoch": 2, "landed_at": MOMENT}
    return {"reason": "retention", "from": start, "to": end, "rows": rows, **whose, **values}


def make(lake: Path, **rows: list[dict[str, Any]]) -> None:
    """Creates the tables with the landing job's columns and adds `rows`, by table. Without Spark."""
    for name in SCHEMAS:
        there = (lake / name).exists()
        if name in rows or not there:
            before = DeltaTable(str(lake / name)).to_pyarrow_table().num_rows if there and name == BATCHES else 0
            numbered = [{"number": number, **row} for number, row in enumerate(rows.get(name, []), before + 1)]
            append(lake / name, SCHEMAS[name], numbered if name == BATCHES else rows.get(name, []))


def erase(
    lake: Path, *, offsets: list[int], ids: list[str], deletes: str = "false", table: str = EVENTS, **values: Any
) -> None:
    """Deletes rows of the table, and lists `offsets` of the first partition as erased."""
    DeltaTable(str(lake / table)).delete(deletes)
    listed = {"topic_id": "id", "partition": 0, "rows": len(offsets), "offsets": offsets, "ids": ids, **values}
    why = {"erasure": "e1", "requested_by": "dpo", "reason": "ticket 5", "table": table, "erased_at": MOMENT}
    told = CommitProperties(app_transactions=[Transaction(ERASED_APP, 1)])
    append(lake / ERASURES, erasures.SCHEMA, [{**why, **listed}], told)


def drop(lake: Path, kept_from: date, table: str = EVENTS) -> None:
    """Says, as the job does, that days of the table before `kept_from` were dropped."""
    commit(lake, table, (kept_from - date(1970, 1, 1)).days, app=RETAINED_APP)


def commit(lake: Path, table: str, version: int, properties: dict[str, str] | None = None, app: str = APP_ID) -> None:
    """Commits a transaction of the landing job's to the table, and properties; no rows."""
    told = CommitProperties(app_transactions=[Transaction(app, version)])
    append(lake / table, SCHEMAS[table], [], told)
    if properties:
        DeltaTable(str(lake / table)).alter.set_table_properties(properties, raise_if_not_exists=False)


def append(
    table: Path, columns: StructType, rows: list[dict[str, Any]], properties: CommitProperties | None = None
) -> None:
    schema = to_arrow_schema(columns, timezone="UTC")
    write_deltalake(
        str(table), pa.Table.from_pylist(rows, schema=schema), partition_by=[DAY] if DAY in schema.names else None,
        mode="append", schema_mode="merge", commit_properties=properties,
    )  # fmt: skip


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("small") / "lake"
    make(
        made,
        events=[event(0), event(1), event(3), event(0, 1)],
        quarantine=[reject(2)],
        batches=[batch(0, 2, 2), batch(2, 4, 1, 1), batch(0, 1, 1, partition=1)],
    )
    return made


@pytest.fixture
def lake(tmp_path: Path, small_lake: Path) -> Path:
    """A copy, to be damaged. The name of a folder needs no care."""
    return Path(shutil.copytree(small_lake, tmp_path / "ü's 100% a=b&c#d" / "lake"))


def test_csv_and_json_are_the_rows(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has times in ISO, and bytes in base64."""
    sql = "select event_id, payload, day, landed_at, 'nan'::double as f, [1, null] as l, null as x, 'a,\"' as x from events"
    sql = f'{sql} where "offset" = 3'
    names = ["event_id", "payload", "day", "landed_at", "f", "l", "x", "x_1"]
    values = ["d.3", "/w==", "2026-05-06", "2026-05-06T12:00:00.123456+00:00", "nan"]
    assert query.query(sql, lake=str(lake), as_csv=True) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [names, [*values, "[1, null]", "", 'a,"']]
    assert query.query(sql, lake=str(lake), as_json=True) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == dict(zip(names, [*values, [1, None], None, 'a,"'], strict=True))
    assert query.query("select event_id from events where false", lake=str(lake), as_json=True) == 0
    assert capsys.readouterr().out == "[]\n"


def test_what_a_store_said_is_one_sentence_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
    chain = "Kernel error\n \x1b[31m↳\x1b[0m GET https://x/y?sig=abcd1234\n \x1b[31m↳\x1b[0m wrong key hushhush\n"
    assert trouble(OSError(chain)) == "GET https://x/y?… wrong key …"


def test_columns_are_shown_with_what_they_mean(lake: Path) -> None:
    meaning = SCHEMAS[EVENTS]["event_id"].metadata["comment"]
    events = DeltaTable(str(lake / EVENTS))
    events.alter.set_table_description(ABOUT[EVENTS])
    events.alter.set_column_metadata("event_id", {"comment": meaning})
    schema = [tuple(row.values()) for row in query.run(query.QUERIES["schema"], lake)]
    assert {(EVENTS, "", "", ABOUT[EVENTS]), (EVENTS, "event_id", "varchar", meaning)} <= {*schema}
    assert [column for table, column, *_ in schema if table == BATCHES][1:] == SCHEMAS[BATCHES].names


def test_no_rows_is_said_beside_the_output(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(empty := tmp_path / "empty")
    *checks, whole = exactly_once(empty)
    assert all(row["ok"] for row in checks)
    assert whole == {"check": "all of it", "ok": True, "detail": "nothing has landed yet"}
    landed = r"The last batch landed [\d,]+ s ago; quarantine has \d+ records\."
    for where, text in ((lake, landed), (empty, r"Nothing has landed yet\.")):
        assert query.query("select * from events where false", lake=str(where)) == 0
        said = capsys.readouterr()
        assert said.out == ""
        assert re.fullmatch(rf"No rows\. {text}\n", said.err)


@pytest.mark.parametrize(
    "sql",
    [
        "delete from events", "copy events to 'x.csv'", "explain analyze copy (select 1) to 'x.csv'",
        "set memory_limit = '1GB'", "select 1; select 2", "", "install httpfs", "explain select 1",
        "select * from read_csv('/etc/passwd')", "select * from glob('/*')", "selct 1", "select * from nothing",
        "select interval '1000000000 days'",
    ],
)  # fmt: skip
def test_anything_but_one_query_is_refused_in_a_line(lake: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake)
    before = sorted(lake.rglob("*"))
    with pytest.raises(CommandError) as refused:
        query.run(sql, lake)
    assert "\n" not in str(refused.value)
    assert sorted(lake.rglob("*")) == before


@pytest.mark.parametrize("name", ["service", "body.service", "events.service"])
def test_who_asks_for_a_clients_field_hears_where(lake: Path, name: str) -> None:
    with pytest.raises(CommandError, match=re.escape("body->>'$.service'")):
        query.run(f"select {name} from events", lake)


def test_a_column_in_the_wrong_place_is_no_clients_field(lake: Path) -> None:
    with pytest.raises(CommandError) as refused:
        query.run("select stream, count(*) from events", lake)
    assert "body" not in str(refused.value)


def test_ctrl_c_ends_a_query_that_runs(lake: Path) -> None:
    with connect(lake) as connection:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            rows(connection, "select count(*) from range(30000000000) t(n) where n % 7 = sqrt(n)")


def test_a_lake_that_cannot_be_read_is_refused(lake: Path) -> None:
    shutil.copytree(lake, lake.with_name("a[b"))
    with pytest.raises(CommandError, match=r"rename the folder, so that its path has no \["):
        query.run("select 1", lake.with_name("a[b"))
    for file in (lake / EVENTS).glob("day=*/*.parquet"):
        file.unlink()
    with pytest.raises(CommandError, match=r"/events cannot be read: .*No files found"):
        query.run("select count(*) from events", lake)
    vectors = [TableFeatures.DeletionVectors]
    DeltaTable(str(lake / EVENTS)).alter.add_feature(vectors, allow_protocol_versions_increase=True)
    with pytest.raises(CommandError, match="has the feature deletionVectors, which this version does not read"):
        query.run("select 1", lake)


def test_nothing_that_a_client_sent_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(console, "OUT", Console(file=file, force_terminal=True, width=20, color_system=None))
    query._show([{"a": "one\x1b[2J\ntwo", "b": "a long, long value"}])
    assert "\x1b" not in file.getvalue()
    assert "one\\x1b[2J" in file.getvalue()
    for size in (16, 17):
        query._show([{"a": size * "y"}])
    assert file.getvalue().count("│ y") == 1, "a table, as long as it has room"


def test_the_proof_holds(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.query(None, lake=str(lake), named="exactly-once", as_json=True) == 0
    proof = json.loads(capsys.readouterr().out)
    assert [row["ok"] for row in proof] == [True] * 12
    assert proof[-1]["detail"].startswith("ranges 3, partitions 2, records 5, events 4, ")
    make(lake, events=[event(1)])
    assert query.query(None, lake=str(lake), named="exactly-once", as_json=True) == 1
    (detail,) = [row["detail"] for row in json.loads(capsys.readouterr().out)[:-1] if not row["ok"]]
    assert "from 0, said 2, found 3, different 2" in detail


def test_named_queries_answer_what_people_ask_first(lake: Path) -> None:
    later = MOMENT + timedelta(hours=1)
    make(
        lake,
        events=[event(4, source="/forward/a", received_time=at) for at in (MOMENT, MOMENT, later)],
        quarantine=[{**reject(5), "protocol": "forward", "received_time": later}],
        duplicates=[place(6, 0, {})],
        gaps=[gap(9, 12, rows=1)],
    )
    hour = MOMENT.replace(minute=0, second=0, microsecond=0)
    hours = [tuple(row.values()) for row in query.run(query.QUERIES["hours"], lake) if row["source"]]
    assert hours == [(hour, "/forward/a", 2), (hour + timedelta(hours=1), "/forward/a", 1)]
    assert query.run(query.QUERIES["resends"], lake) == [
        {"hour": hour, "topic_id": "id", "partition": 0, "collapsed": 1}
    ]
    (_, row) = query.run(query.QUERIES["quarantine"], lake)
    assert row == {"reason": "bad_json", "protocol": None, "records": 1, "first": None, "last": None}
    found = query.run(query.QUERIES["gaps"], lake)
    assert [(row["reason"], row["from"], row["to"], row["lost"]) for row in found] == [("retention", 9, 12, 2)]
    for name in query.QUERIES:
        assert query.query(None, lake=str(lake), named=name) == 0


def empty(start: int, end: int, **values: object) -> dict[str, Any]:
    """A line of `batches` without records."""
    return {**batch(start, end, 0), **values}


def claims(*tables: str) -> Callable[[Path], None]:
    """A second job claims `tables`."""

    def claim(lake: Path) -> None:
        for table in tables:
            commit(lake, table, claim_of(2))

    return claim


def all_deleted(kept_from: date) -> Callable[[Path], None]:
    def delete(lake: Path) -> None:
        DeltaTable(str(lake / EVENTS)).delete()
        drop(lake, kept_from)

    return delete


def list_lost(lake: Path) -> None:
    erase(lake, offsets=[1], ids=["d.1"])
    DeltaTable(str(lake / ERASURES)).delete()


Step = dict[str, list[dict[str, Any]]] | Callable[[Path], None]
"""Rows for tables, or what is done to the lake."""
LEFT: list[Step] = [{"events": [event(4), event(6)]}, claims(EVENTS, GAPS)]
NOTED: list[Step] = [*LEFT, claims(BATCHES), {"batches": [empty(4, 4, batch=-1, epoch=2, strays=7)]}]
"""Rows that a killed job left are known when the last table is claimed."""
EARLIER: Step = {"batches": [batch(4, 6, 2, landed_at=MOMENT - timedelta(days=1))]}
PROOF: dict[str, dict[str, list[Step]]] = {
    "": {
        "a gap before the first range": [
            {"gaps": [gap(0, 7, partition=2)], "batches": [batch(7, 8, 1, partition=2)], "events": [event(7, 2)]}
        ],
        "a gap of a partition never landed": [{"gaps": [gap(0, 7, partition=3)]}],
        "a gap with rows of a batch half done": [
            {"gaps": [gap(4, 9, rows=3)], "batches": [batch(9, 10, 1)], "quarantine": [reject(5)]},
            {"events": [event(4), event(6), event(9)]},
        ],
        "a gap of the running job": [claims(GAPS), {"gaps": [gap(4, 9)], "batches": [empty(9, 10, epoch=2)]}],
        "an erasure of an event and of a reject": [
            lambda lake: erase(lake, offsets=[1], ids=["d.1"], deletes="event_id = 'd.1'"),
            lambda lake: erase(lake, offsets=[2], ids=[], deletes="true", table=QUARANTINE),
        ],
        "a recreated topic": [{"gaps": [gap(4, None, rows=1, reason="recreated")], "events": [event(7)]}],
        "a recreated topic, nothing landed": [
            {"gaps": [gap(0, None, reason="recreated", partition=None, topic_id="other")]}
        ],
        "a claim in the middle": [{"events": [event(4)]}, claims(BATCHES, EVENTS)],
        "resends": [{"batches": [batch(4, 6, 2)], "duplicates": [place(4, 0, {}), place(5, 0, {})]}],
        "a replay, which is no batch": [lambda lake: commit(lake, BATCHES, transaction(2, REPLAYED + 1))],
        "a batch under way": [
            {"events": [event(4), event(1, 1), event(0, 2)]}, lambda lake: commit(lake, EVENTS, transaction(1, 3))
        ],
        "rows that a job left": NOTED,
        "days dropped": [EARLIER, lambda lake: drop(lake, DAY_OF_IT)],
        "all days of an idle lake dropped": [all_deleted(datetime.now(UTC).date())],
    },
    "no hole": {
        "a hole": [{"batches": [empty(5, 6)]}],
        "an overlap": [{"batches": [empty(3, 5)]}],
        "an empty range": [{"batches": [empty(4, 4)]}],
        "a hole of which a gap explains the beginning": [{"gaps": [gap(4, 7)], "batches": [empty(8, 9)]}],
        "a hole of another partition": [{"gaps": [gap(4, 8, partition=1)], "batches": [empty(8, 9)]}],
        "a gap over what was landed": [{"gaps": [gap(3, 9)]}],
        "a topic that lives on after it was recreated": [
            {"gaps": [gap(4, None, reason="recreated")], "batches": [empty(9, 10)]}
        ],
    },
    "the gaps hold": {
        "a row in a gap": [{"gaps": [gap(4, 9)], "events": [event(5)]}],
        "a row in a gap, doubled": [{"gaps": [gap(4, 9, rows=2)], "events": [event(5), event(5)]}],
    },
    "each record of a range": {
        "a row lost": [{"batches": [batch(4, 6, 2)], "events": [event(4)]}],
        "a row lost on the first kept day": [
            lambda lake: drop(lake, DAY_OF_IT), {"batches": [batch(4, 6, 2)], "events": [event(4)]}
        ],
        "a row lost of a day that was not dropped": [
            EARLIER, lambda lake: drop(lake, DAY_OF_IT - timedelta(days=1))
        ],
        "a row doubled": [{"events": [event(1)]}],
        "a quarantined row doubled": [{"quarantine": [reject(2)]}],
        "a duplicate that landed, too": [{"duplicates": [place(1, 0, {})]}],
        "one in both tables, one in none": [
            {"batches": [batch(4, 6, 1, 1)], "events": [event(4)], "quarantine": [reject(4)]}
        ],
        "more deleted than is listed": [
            lambda lake: erase(lake, offsets=[1], ids=["d.1"], deletes="event_id in ('d.1', 'd.3')")
        ],
        "a list of what never landed": [lambda lake: erase(lake, offsets=[2], ids=[])],
    },
    "rows beyond": {
        "rows of another topic": [{"events": [event(0, topic_id="other"), event(1, topic_id="other")]}],
        "a row beyond the last range": [{"events": [event(4)]}],
        "a quarantined row of a partition that never landed": [{"quarantine": [reject(4, 9)]}],
        "rows that a job left before they are known": LEFT,
        "a row more than those that a job left": [*NOTED, {"events": [event(7)]}],
    },
    "all tables are there": {
        "a table lost": [lambda lake: shutil.rmtree(lake / QUARANTINE)],
        "the gaps lost": [lambda lake: shutil.rmtree(lake / GAPS)],
    },
    "no row of batches is missing": {
        "a row of batches that was deleted": [{"batches": [empty(4, 5, number=5)]}],
        "two rows of batches with one number": [{"batches": [empty(4, 5, number=5), empty(5, 6, number=5)]}],
    },
    "nothing is there that was erased": {
        "an erased row that is there": [lambda lake: erase(lake, offsets=[1], ids=[])],
        "an erased row of quarantine that is there": [lambda lake: erase(lake, offsets=[2], ids=[], table=QUARANTINE)],
        "an erased event that landed again": [
            lambda lake: erase(lake, offsets=[1], ids=["d.1", "d.3"], deletes="event_id = 'd.1'")
        ],
    },
    "each erasure was listed": {
        "an erasure that the command did not list": [
            lambda lake: append(
                lake / ERASURES, erasures.SCHEMA, [{"erasure": "e2", "table": EVENTS, "offsets": [], "ids": []}]
            )
        ],
        "the list of an erasure lost": [list_lost],
    },
    "the last batch": {"the last batch deleted": [lambda lake: commit(lake, BATCHES, transaction(1, 3))]},
    "days were dropped": {
        "days dropped that are not over": [lambda lake: drop(lake, date(2999, 1, 1))],
        "days dropped that are not over, and all events deleted": [all_deleted(date(2999, 1, 1))],
    },
    "each gap": {
        "a gap of an epoch that nobody claimed": [claims(GAPS), {"gaps": [gap(4, 9, epoch=3)]}],
        "a gap of a job that had landed beyond it": [
            claims(GAPS), {"gaps": [gap(4, 9, epoch=1, landed_at=MOMENT - timedelta(seconds=1))]}
        ],
    },
}  # fmt: skip
"""What is wrong with a lake, by the words of the check that says so; first what only looks wrong."""


@pytest.mark.parametrize(("check", "name"), [(check, name) for check in PROOF for name in PROOF[check]])
def test_the_proof_fails_on_damage_alone(lake: Path, check: str, name: str) -> None:
    for step in PROOF[check][name]:
        if callable(step):
            step(lake)
        else:
            make(lake, **step)
    *failed, whole = [row["check"] for row in exactly_once(lake) if not row["ok"]] or [""]
    assert whole == ("all of it" if check else "")
    assert not check or any(check in each for each in failed), failed


def test_tables_are_named_as_the_job_names_them() -> None:
    assert {EVENTS, QUARANTINE, DUPLICATES, BATCHES, GAPS, ERASURES} == set(TABLES)


LANDED = {("t", "id", 0): 100, ("t", "id", 1): 5}
HELD = {("t", 0): (0, 100), ("t", 1): (5, 5), ("u", 0): (0, 0)}


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({}, ["", "", "0 offsets are not landed yet"]),
        ({("t", 0): (3, 107), ("u", 0): (2, 4), ("t", 2): (0, 0)}, ["", "", "9 offsets are not landed yet"]),
        ({("t", 0): (0, 99)}, ["topic t, partition 0, landed_to 100, kafka_ends_at 99", ""]),
        ({("t", 1): None}, ["partition 1, landed_to 5, kafka_ends_at ", ""]),
        ({("t", 1): (6, 9)}, ["", "partition 1, landed_to 5, kafka_begins_at 6"]),
    ],
)  # fmt: skip
def test_where_the_tables_end_beside_kafka(held: dict[Any, Any], said: list[str]) -> None:
    """`said` of what was landed beyond Kafka's end, of what Kafka deleted before, and of the rest."""
    offsets = {(topic, "id", number): found for (topic, number), found in (HELD | held).items() if found}
    rows = against_kafka.compare(LANDED, offsets)
    assert [row["ok"] for row in rows] == [not text for text in said[:2]] + [True]
    for row, text in zip(rows, said, strict=False):
        assert text in row["detail"]


def test_a_logjam_devices_number_is_stored_in_quarantine_too(lake: Path) -> None:
    def numbered(number: int) -> dict[str, Any]:
        about = {"device": 7, "sequence": number, "consumer": "a", "start": 1, "restarts": 0}
        return {"protocol": "logjam", "source": "/logjam/one", "attributes": json.dumps(about), "received_time": MOMENT}

    make(lake, events=[event(4, **numbered(1)), event(6, **numbered(4))], quarantine=[reject(5, **numbered(2))])
    (row,) = query.run(query.QUERIES["losses"], lake)
    assert (row["from_sequence"], row["to_sequence"]) == (3, 4)
