"""The map in the JVM against the same model as the arrays, called one by one and from many tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from headrace_lake.janino import CompilerError, define
from headrace_lake.map_memory import function_of
from headrace_lake.memory import ELSEWHERE, Kind
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.lake.histories import HORIZON, Asked, Model, batches

pytestmark = pytest.mark.spark

AMPLE = 1 << 24
SLOT = 32
quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

Make = Callable[[int, int], Any]


@pytest.fixture
def make(spark: SparkSession) -> Iterator[Make]:
    """Makes memories, of which only the last lives."""
    living: list[Any] = []

    def made(horizon: int, most: int) -> Any:
        for old in living:
            old.close()
        living[:] = [define(spark, "RecentIds")(horizon, most)]
        living[0].resolved(True)
        return living[0]

    yield made
    for old in living:
        old.close()


def judge(memory: Any, event: Asked) -> bool:
    return bool(memory.judge(event.id.encode(), event.time, event.place, int(event.kind)))


@quick
@given(batches())
def test_any_history_is_judged_as_the_model_does(make: Make, history: list[list[Asked]]) -> None:
    memory, model = make(HORIZON, AMPLE), Model()
    for event in (event for batch in history for event in batch):
        assert judge(memory, event) == model.judge(event)
    assert memory.ids() == sum(map(len, model.landed.values()))
    assert memory.uniques() == sum(len(entries) for name, entries in model.landed.items() if name[0] == "u")


@quick
@given(batches(), batches())
def test_what_the_table_holds_is_remembered(make: Make, before: list[list[Asked]], after: list[list[Asked]]) -> None:
    memory, model = make(HORIZON, AMPLE), Model()
    for event in (event._replace(kind=Kind.LANDED) for batch in before for event in batch):
        assert not judge(memory, event)
        model.judge(event)
    for event in (event for batch in after for event in batch):
        assert judge(memory, event) == model.judge(event)


def test_out_of_room_the_oldest_go_and_are_counted(make: Make) -> None:
    most = 3 * 32 * 64 * SLOT  # thrice of what it begins with
    memory = make(HORIZON, most)
    for index in range(6_000):
        assert not judge(memory, Asked(f"d.{index * 7919:032x}", index // 10, index, Kind.ORDINARY))
    forgotten, to = memory.forgotten(), memory.forgottenTo()
    assert memory.bytes() <= most
    assert memory.ids() + forgotten == 6_000
    assert 0 < forgotten < 5_000
    told = 0
    for index in range(6_000):
        again = Asked(f"d.{index * 7919:032x}", index // 10, 10_000 + index, Kind.UNIQUE)  # asks only
        duplicate = judge(memory, again)
        assert duplicate or index // 10 <= to
        told += duplicate
    assert told == memory.ids()


def test_ids_of_one_time_give_way_too(make: Make) -> None:
    memory = make(HORIZON, 32 * 64 * SLOT)
    for index in range(4_000):
        judge(memory, Asked(f"d.{index:032x}", 5, index, Kind.ORDINARY))
    assert memory.bytes() == 32 * 64 * SLOT
    assert memory.ids() + memory.forgotten() == 4_000


def test_expired_ids_make_room_and_are_not_counted_as_forgotten(make: Make) -> None:
    memory = make(HORIZON, AMPLE)
    for index in range(5_000):
        memory.keepFrom(index - 100)
        judge(memory, Asked(f"d.{index:032x}", index, index, Kind.ORDINARY))
    assert memory.forgotten() == 0
    assert memory.bytes() == 32 * 64 * SLOT, "it never had to grow"
    assert memory.ids() < 32 * 64


@pytest.mark.parametrize(
    "name",
    [
        "d." + "G" * 32,
        "d." + "A" * 32,
        "d." + "0" * 31 + " ",
        "d." + "0" * 31,
        "u.",
        "d." + "\u00e9" * 16,
        "d." + "0" * 33,
    ],
)
def test_an_id_that_is_none_of_ours_is_left_alone(make: Make, name: str) -> None:
    memory = make(HORIZON, AMPLE)
    for place in range(2):
        assert not judge(memory, Asked(name, 0, place, Kind.ORDINARY))
    assert memory.ids() == 0


def test_a_republished_unique_id_must_be_resolved_first(make: Make) -> None:
    memory = make(HORIZON, AMPLE)
    memory.resolved(False)
    with pytest.raises(Exception, match="HEADRACE_UNRESOLVED"):
        judge(memory, Asked("u." + "0" * 32, 0, 0, Kind.REPUBLISHED))
    assert not judge(memory, Asked("d." + "0" * 32, 0, 0, Kind.REPUBLISHED))


def test_places_of_topics_that_are_no_more_are_no_records_place(make: Make) -> None:
    memory = make(HORIZON, AMPLE)
    for time in (0, 100):
        judge(memory, Asked("d." + "0" * 32, time, ELSEWHERE, Kind.LANDED))
    assert memory.ids() == 2
    assert judge(memory, Asked("d." + "0" * 32, 100, 0, Kind.ORDINARY))


def test_tasks_share_one_memory(spark: SparkSession, make: Make) -> None:
    """Each of 4,000 ids five times, over four tasks: one of the five is new, whichever; and again the same one."""
    memory = make(HORIZON, AMPLE)
    spark._jsparkSession.udf().register("remembered", function_of(spark, memory))
    events = spark.range(0, 20_000, 1, 4).selectExpr(
        "binary('d.' || lpad(lower(hex(id % 4000)), 32, '0')) as id", "id as place", "id div 4000 as time"
    )
    judged = events.selectExpr("place", f"remembered(id, time, place, {int(Kind.ORDINARY)}) as duplicate")
    new = {row.place for row in judged.where("not duplicate").collect()}
    assert {place % 4_000 for place in new} == set(range(4_000))
    assert len(new) == memory.ids() == 4_000
    assert {row.place for row in judged.where("not duplicate").collect()} == new
    counted = judged.agg(sf.count_if("duplicate"), sf.count("*")).first()
    assert tuple(counted) == (16_000, 20_000)


def test_a_source_that_does_not_compile_is_said_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    define(spark, "RecentIds")
    assert define(spark, "RecentIds") is not None, "a second time in the same JVM"
    monkeypatch.setattr("headrace_lake.janino._compiled", lambda *_: {"headrace.lake.Broken": b"nothing"})
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: "")
    with pytest.raises(CompilerError, match="ClassFormatError"):
        define(spark, "Broken")
