"""`headrace query --fresh`: the tables and what Kafka alone holds, each event once."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.admin import NewPartitions, RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from deltalake import DeltaTable
from headrace_cli.ground import CommandError
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.rows import decode
from headrace_lake.tables.layout import EVENTS
from headrace_reader.fresh import tail
from headrace_reader.fresh.rows import SCHEMA
from headrace_reader.fresh.rows import event as row_of
from headrace_reader.fresh.tail import Tail
from headrace_reader.fresh.union import LANDED, add_unlanded
from headrace_reader.tables import connect, rows
from pyspark.sql import SparkSession

from tests.cli.operating.topics import Headers, asked, event_headers, lead_to, put
from tests.contract.topic import unmade
from tests.lake import test_decode
from tests.lake.runs import Running, Runs
from tests.lake.test_query import batch, erase, event, make
from tests.system.cluster import admin
from tests.tiers import examples, sized

Place = tuple[int, int]


def named(number: int) -> str:
    return f"d.{number:032x}"


@dataclass
class Case:
    """`sent`: partition -> numbers of events, None for a record with a fault; `landed`: place -> number; `ends`: of `batches`."""

    sent: dict[int, list[int | None]]
    landed: dict[Place, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    shown: Sequence[int] = ()
    """Numbers of the events that are added."""
    other_topic: bool = False
    erased: dict[str, Any] | None = None
    transactions: bool = False


CASES = {
    "a batch is being written": Case({0: [1, 2, 3]}, {(0, 0): 1, (0, 1): 2}, {0: 1}, [3]),
    "a record with a fault": Case({0: [None, 2]}, {}, {0: 0}, [2]),
    "an erased id comes again": Case(
        {0: [1, 2]}, {}, {0: 0}, [2], erased={"offsets": [], "ids": [named(1)]}
    ),
    "a replay goes over an erased place": Case({0: [1, 2]}, {}, {0: 0}, [2], erased={"offsets": [0], "ids": []}),
    "the topic was made again": Case({0: [3, 4]}, {(0, 0): 1, (0, 1): 2}, {0: 2}, [3, 4], other_topic=True),
    "a partition was added": Case({0: [1], 3: [2, 3]}, {(0, 0): 1}, {0: 1}, [2, 3]),
    "ends of transactions": Case({0: [1, 2]}, {(0, 0): 1}, {0: 1}, [2], transactions=True),
}  # fmt: skip


def records(numbers: Sequence[int | None]) -> list[tuple[bytes, Headers]]:
    return [(b"{}", event_headers(number) if number is not None else []) for number in numbers]


def lay(lake: Path, kafka: KafkaSettings, case: Case) -> None:
    whose = {
        "topic": kafka.events_topic,
        "topic_id": "gone" if case.other_topic else asked(kafka, kafka.events_topic).id,
    }
    landed = [
        event(at, partition, event_id=named(number), received_time=datetime.now(UTC), **whose)
        for (partition, at), number in case.landed.items()
    ]
    lines = [{**batch(0, end, end, partition=partition), **whose} for partition, end in case.ends.items()]
    make(lake, events=landed, batches=lines)
    if case.erased is not None:
        erase(lake, **case.erased, topic_id=whose["topic_id"])


def look(lake: Path, kafka: KafkaSettings, before: Tail | None = None) -> tuple[list[str], list[str], str]:
    """The ids that have landed and those that were added, and why none was."""
    with connect(lake) as connection:
        why = add_unlanded(connection, kafka, before)
        found = rows(connection, 'from events order by event_id, "partition", "offset"')
        landed = [row["event_id"] for row in found if row["landed_at"] is not None]
        return landed, [row["event_id"] for row in found if row["landed_at"] is None], why


@pytest.mark.kafka
@pytest.mark.parametrize("name", CASES)
def test_each_event_is_shown_once(topics: KafkaSettings, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    for partition, numbers in case.sent.items():
        put(topics, topics.events_topic, records(numbers), partition=partition, transactions=case.transactions)
    lay(tmp_path, topics, case)
    landed = sorted(map(named, case.landed.values()))
    assert look(tmp_path, topics) == (landed, sorted(map(named, case.shown)), "")


def deleted(kafka: KafkaSettings, before: int) -> None:
    """Makes Kafka delete what the first partition has before an offset."""

    async def delete() -> None:
        async with admin(kafka) as client:
            await client.delete_records({TopicPartition(kafka.events_topic, 0): RecordsToDelete(before)})

    asyncio.run(delete())


@pytest.mark.kafka
def test_what_kafka_has_lost_leaves_the_tables_alone(topics: KafkaSettings, tmp_path: Path) -> None:
    """A landing job that starts now would halt."""
    put(topics, topics.events_topic, records([1, 2, 3]))
    lay(tmp_path, topics, Case({}, {(0, 0): 1}, {0: 1}))
    deleted(topics, 1)
    before = Tail()
    assert look(tmp_path, topics, before) == ([named(1)], [named(2), named(3)], "")
    deleted(topics, 2)
    landed, added, why = look(tmp_path, topics)
    assert (landed, added, bool(why)) == ([named(1)], [], True)
    assert look(tmp_path, topics, before) == ([named(1)], [named(2), named(3)], "")
    lay(tmp_path / "longer", topics, Case({}, {}, {0: 4}))
    assert look(tmp_path / "longer", topics)[2]
    lay(tmp_path / "unclaimed", topics, Case({}))
    assert look(tmp_path / "unclaimed", topics)[1:] == ([named(3)], "")


@pytest.mark.kafka
def test_more_than_the_limits_leaves_the_tables_alone(
    topics: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(topics, topics.events_topic, records([1, 2, 3]))
    lay(tmp_path, topics, Case({}, {(0, 0): 1}, {0: 1}))
    kept = [decoded(test_decode.Record(value=b"{}", headers=[*event_headers(number)])) for number in (2, 3)]
    together, apart = (
        sum(pa.Table.from_pylist(each, SCHEMA).nbytes for each in some) for some in ([kept], [[row] for row in kept])
    )
    for limit, enough, less in (("MOST_RECORDS", 2, 1), ("MOST_BYTES", apart, together - 1)):
        for most in (enough, less):
            with monkeypatch.context() as patch:
                patch.setattr(tail, limit, most)
                _, added, why = look(tmp_path, topics)
                assert (len(added), bool(why)) == ((0, True) if most == less else (2, False))


@pytest.mark.kafka
def test_a_topic_that_changes_meanwhile_leaves_the_tables_alone(
    topics: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(topics, topics.events_topic, records([1]))
    lay(tmp_path, topics, Case({}, {}, {0: 0}))

    async def follow(*args: Any, inner: Any = Tail._follow) -> None:
        await inner(*args)
        async with admin(topics) as client:
            await client.create_partitions({topics.events_topic: NewPartitions(5)})

    async def too_late(*_: Any) -> None:
        raise OffsetOutOfRangeError

    before = Tail()
    for fault in (follow, too_late):
        with monkeypatch.context() as patch:
            patch.setattr(Tail, "_follow", fault)
            assert look(tmp_path, topics, before)[1] == []
    assert look(tmp_path, topics, before)[1] == [named(1)]


@pytest.mark.kafka
def test_no_topic_and_no_tables(topics: KafkaSettings, tmp_path: Path) -> None:
    lay(tmp_path, topics, Case({}, {(0, 0): 1}, {0: 1}))
    assert look(tmp_path, unmade(topics.bootstrap_servers)) == ([named(1)], [], "")
    for table in ("quarantine", "duplicates"):
        (tmp_path / table).rename(tmp_path / f"no_{table}")
    with pytest.raises(CommandError):
        look(tmp_path, topics)


@pytest.mark.kafka
@pytest.mark.parametrize("seed", range(examples(20)))
def test_any_landing_shows_the_same_events(topics: KafkaSettings, tmp_path: Path, seed: int) -> None:
    """Random resends over random partitions, of which the tables hold any part, also beyond their ends; then more of both."""
    chance, before = random.Random(seed), Tail()
    sent: dict[int, list[int | None]] = {n: [] for n in range(4)}
    ends, written = dict.fromkeys(sent, 0), dict.fromkeys(sent, 0)
    landed: dict[int, Place] = {}
    for moment in ("then", "later"):
        for partition, numbers in sent.items():
            more = [chance.randrange(30) for _ in range(10)]
            put(topics, topics.events_topic, records(more), partition=partition)
            numbers += more
            ends[partition] = end = chance.randrange(ends[partition], len(numbers) + 1)
            written[partition] = max(written[partition], chance.choice([end, chance.randrange(end, len(numbers) + 1)]))
            for at, number in enumerate(numbers[: written[partition]]):
                landed.setdefault(number or 0, (partition, at))
        lay(tmp_path / moment, topics, Case({}, {place: number for number, place in landed.items()}, ends))
        shown = {number or 0 for numbers in sent.values() for number in numbers}
        wanted = sorted(map(named, landed)), sorted(map(named, shown - landed.keys())), ""
        assert look(tmp_path / moment, topics, before) == wanted


@pytest.mark.kafka
def test_the_verb_shows_it_and_the_shell_looks_anew(
    topics: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lead_to(topics, monkeypatch)
    lay(tmp_path, topics, Case({}, {(0, 0): 1}, {0: 1}))
    DeltaTable(str(tmp_path / EVENTS)).alter.set_column_metadata("event_id", {"comment": "its name"})
    sql = "select event_id, stream from events order by event_id"

    def lines() -> Any:
        for number in (2, 3):
            put(topics, topics.events_topic, records([1, 2] if number == 2 else [3]))
            yield sql
        raise EOFError

    said = lines()
    monkeypatch.setattr("builtins.input", lambda _: next(said))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    options: dict[str, Any] = {"state": tmp_path, "lake": str(tmp_path), "fresh": True}
    assert query.query(None, **options) == 0
    wanted = [f"{named(1)}\t", *(f"{named(number)}\tshop" for number in (2, 2, 3))]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted([wanted[0], *wanted])
    assert query.query("select count(*) from events where day = today()", **options) == 0
    assert capsys.readouterr().out == "2\n"
    assert query.query(f"select count(*) from {LANDED}", **options) == 0
    assert capsys.readouterr().out == "1\n"
    assert query.query(None, named="schema", **options) == 0
    assert "\tevent_id\tvarchar\tits name" in capsys.readouterr().out
    monkeypatch.setattr(tail, "MOST_RECORDS", 1)
    assert query.query("select count(*) from events", **options) == 0
    printed = capsys.readouterr()
    assert (printed.out, bool(printed.err)) == ("1\n", True)
    with pytest.raises(CommandError):
        query.query(None, named="exactly-once", **options)


TIMED = [test_decode.Record(test_decode.changed("ce_time", text)) for text in test_decode.TIMES]
SOUND = [*test_decode.SOUND.values(), *TIMED]
FAULTY = [record for record, _, _ in test_decode.FAULTY.values()]


def decoded(record: test_decode.Record, offset: int = 100) -> dict[str, Any] | None:
    at = round(test_decode.RECEIVED.timestamp() * 1000)
    kept: Any = SimpleNamespace(
        partition=3, offset=offset, timestamp=at, headers=record.headers or [], value=record.value
    )
    row = row_of(kept)
    return row and {name: row.get(name) for name in SCHEMA.names}


def test_a_record_with_a_fault_is_no_row() -> None:
    assert [record for record in FAULTY if decoded(record) is not None] == []
    assert [record for record in SOUND if decoded(record) is None] == []
    times = [(decoded(record) or {})["event_time"] for record in TIMED]
    assert times == [*test_decode.TIMES.values()]


@pytest.mark.spark
def test_rows_are_those_that_land(spark: SparkSession) -> None:
    of_landing = {"topic", "topic_id", "landed_at", "day", decode.FAULT}
    for offset, (record, landed) in enumerate(zip(SOUND, test_decode.events(spark, SOUND), strict=True), 100):
        row = decoded(record, offset)
        assert row is not None, record
        moment = row["event_time"] and test_decode._micros(row["event_time"])
        found = {**row, "event_time": moment, "received_time": test_decode._naive(row["received_time"])}
        assert found == {name: value for name, value in landed.items() if name not in of_landing}


@pytest.mark.spark
@pytest.mark.kafka
def test_nothing_acknowledged_is_missing_while_the_job_lands(runs: Runs) -> None:
    runs.run()
    job = Running(runs)
    looks, before = 0, Tail()
    try:
        for mark in range(sized(3, 3, 40)):
            runs.send(4000, f"{mark:x}", resend_every=97)
            for _ in range(3):
                landed, added, why = look(runs.lake, runs.kafka, before)
                assert why == ""
                assert sorted([*landed, *added]) == sorted(name for name, _ in runs.sent.events.values())
                looks += bool(added)
    finally:
        job.stop()
    assert looks
    named_by_the_job = runs.query(f"select distinct topic_id from batches where topic = '{runs.kafka.events_topic}'")
    assert named_by_the_job == [{"topic_id": asked(runs.kafka, runs.kafka.events_topic).id}]
    runs.run()
    runs.check()
