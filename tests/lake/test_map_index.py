"""The index `map` in the JVM against the model that the arrays have too: one call at a time, and from many tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from headrace_lake.dedup.index import DUPLICATE, IdKind
from headrace_lake.dedup.map_index import function_of
from headrace_lake.spark.jvm import CompilerError, define
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.contract.waiting import there
from tests.lake.histories import HORIZON, IdEvent, Model, batches

pytestmark = pytest.mark.spark

AMPLE = 1 << 24
SLOT = 32
quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

Make = Callable[[int, int], Any]


@pytest.fixture
def make(spark: SparkSession) -> Iterator[Make]:
    """Makes indexes; only the last one stays open."""
    living: list[Any] = []

    def made(horizon: int, most: int) -> Any:
        for old in living:
            old.close()
        living[:] = [define(spark, "headrace_lake.dedup", "RecentIds")(horizon, most)]
        living[0].resolved(True)
        return living[0]

    yield made
    for old in living:
        old.close()


def check_and_add(recent: Any, event: IdEvent) -> bool:
    return bool(recent.checkAndAdd(event.id.encode(), event.time, event.place, int(event.kind)))


@quick
@given(batches())
def test_any_history_is_answered_as_the_model_does(make: Make, history: list[list[IdEvent]]) -> None:
    recent, model = make(HORIZON, AMPLE), Model()
    for event in (event for batch in history for event in batch):
        assert check_and_add(recent, event) == model.check_and_add(event)
    assert recent.ids() == sum(map(len, model.landed.values()))
    assert recent.uniques() == sum(len(entries) for name, entries in model.landed.items() if name[0] == "u")


@quick
@given(batches(), batches())
def test_what_the_table_holds_is_remembered(
    make: Make, before: list[list[IdEvent]], after: list[list[IdEvent]]
) -> None:
    recent, model = make(HORIZON, AMPLE), Model()
    for event in (event._replace(kind=IdKind.LANDED) for batch in before for event in batch):
        assert not check_and_add(recent, event)
        model.check_and_add(event)
    for event in (event for batch in after for event in batch):
        assert check_and_add(recent, event) == model.check_and_add(event)


def test_out_of_room_the_oldest_go(make: Make) -> None:
    most = 3 * 32 * 64 * SLOT  # thrice of what it begins with
    recent = make(HORIZON, most)
    for index in range(6_000):
        assert not check_and_add(recent, IdEvent(f"d.{index * 7919:032x}", index // 10, index, IdKind.ORDINARY))
    to = recent.forgottenTo()
    assert recent.bytes() <= most
    assert 1_000 < recent.ids() < 6_000
    told = 0
    for index in range(6_000):
        again = IdEvent(f"d.{index * 7919:032x}", index // 10, 10_000 + index, IdKind.UNIQUE)  # asks only
        duplicate = check_and_add(recent, again)
        assert duplicate or index // 10 <= to
        told += duplicate
    assert told == recent.ids()


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
    recent = make(HORIZON, AMPLE)
    for place in range(2):
        assert not check_and_add(recent, IdEvent(name, 0, place, IdKind.ORDINARY))
    assert recent.ids() == 0


def test_tasks_share_one_index(spark: SparkSession, make: Make) -> None:
    """Four tasks bring each of 4,000 ids five times: one of the five is new, and a second pass gives the same answer."""
    recent = make(HORIZON, AMPLE)
    spark._jsparkSession.udf().register("remembered", function_of(spark, recent))
    events = spark.range(0, 20_000, 1, 4).selectExpr(
        "binary('d.' || lpad(lower(hex(id % 4000)), 32, '0')) as id", "id as place", "id div 4000 as time"
    )
    marked = events.selectExpr("place", f"remembered(id, time, place, {int(IdKind.ORDINARY)}) as {DUPLICATE}")
    new = {row.place for row in marked.where(f"not {DUPLICATE}").collect()}
    assert {place % 4_000 for place in new} == set(range(4_000))
    assert len(new) == recent.ids() == 4_000
    assert {row.place for row in marked.where(f"not {DUPLICATE}").collect()} == new
    counted = marked.agg(sf.count_if(DUPLICATE), sf.count("*")).first()
    assert tuple(there(counted)) == (16_000, 20_000)


def test_a_source_that_does_not_compile_is_said_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    define(spark, "headrace_lake.dedup", "RecentIds")
    assert define(spark, "headrace_lake.dedup", "RecentIds") is not None, "a second time in the same JVM"
    monkeypatch.setattr("headrace_lake.spark.jvm._compiled", lambda *_: {"headrace.lake.Broken": b"nothing"})
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: "")
    with pytest.raises(CompilerError, match="ClassFormatError"):
        define(spark, "headrace_lake.dedup", "Broken")
