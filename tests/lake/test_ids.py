"""Both indexes of ids against one naive model: histories, expiry and the limit of memory; how each is asked by the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from headrace_lake.dedup.arrays_index import _marked, id_rows
from headrace_lake.dedup.id_arrays import IdArrays, IdRows
from headrace_lake.dedup.index import ASKED, DUPLICATE, OFFSET_BITS
from headrace_lake.dedup.map_index import function_of
from headrace_lake.spark.jvm import CompilerError, define
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

HORIZON = 10
AMPLE = 1 << 24
FAR = (1 << OFFSET_BITS) - 1  # the last offset that a place can hold
KINDS = (pa.string(), pa.timestamp("us", "UTC"), pa.int32(), pa.int64())  # of `ASKED`
quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


class IdEvent(NamedTuple):
    """One event in the form that an index gets."""

    id: str
    time: int
    place: int


class Model:
    """A dictionary of lists that forgets nothing."""

    def __init__(self) -> None:
        self.landed: dict[str, list[tuple[int, int]]] = {}

    def check_and_add(self, event: IdEvent) -> bool:
        entries = self.landed.setdefault(event.id, [])
        if (event.time, event.place) in entries:
            return False
        if any(abs(time - event.time) <= HORIZON for time, _ in entries):
            return True
        entries.append((event.time, event.place))
        return False


def rows(events: list[IdEvent]) -> IdRows:
    """The events in the form that `IdArrays` takes."""
    return IdRows(
        np.array([int(event.id[2:18], 16) for event in events], np.uint64),
        np.array([int(event.id[18:], 16) for event in events], np.uint64),
        np.array([event.time for event in events], np.int64),
        np.array([event.place for event in events], np.int64),
    )


class Index(NamedTuple):
    """`check_and_add` says of each event whether it is a duplicate; `state`: ids, bytes, and to which time it has forgotten."""

    check_and_add: Callable[[list[IdEvent]], list[bool]]
    state: Callable[[], tuple[Any, ...]]


Make = Callable[[int], Index]


def arrays(most: int) -> Index:
    made = IdArrays(HORIZON, most)
    return Index(lambda batch: list(made.check_and_add(rows(batch)).tolist()), made.state)


@pytest.fixture(params=["arrays", pytest.param("map", marks=pytest.mark.spark)])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes indexes of at most so many bytes; of those in the JVM only the last one stays open."""
    if request.param == "arrays":
        yield arrays
        return
    recent_ids = define(request.getfixturevalue("spark"), "headrace_lake.dedup", "RecentIds")
    with ExitStack() as living:

        def in_jvm(most: int) -> Index:
            living.close()
            made = recent_ids(HORIZON, most)
            living.callback(made.close)
            return Index(
                lambda batch: [made.checkAndAdd(event.id.encode(), event.time, event.place) for event in batch],
                lambda: (made.ids(), made.bytes(), made.forgottenTo()),
            )

        yield in_jvm


# equal except for a few digits, like the ids of one frame
IDS = [f"{kind}.{'0' * 15}{high}{'f' * 15}{low}" for kind, high in ("d0", "u1") for low in "01a"]


@st.composite
def batches(draw: st.DrawFn) -> list[list[IdEvent]]:
    """Batches of events, each at its own place; some batches come again, as after a crash."""
    made: list[list[IdEvent]] = []
    offset = 0
    for _ in range(draw(st.integers(1, 6))):
        if len(made) > 0 and draw(st.booleans()):
            made.append(draw(st.permutations(draw(st.sampled_from(made)))))
            continue
        batch = []
        for _ in range(draw(st.integers(0, 12))):
            name = draw(st.sampled_from(IDS))
            place = draw(st.integers(0, 3)) << OFFSET_BITS | offset
            batch.append(IdEvent(name, draw(st.integers(0, 60)), place))
            offset += 1
        made.append(batch)
    return made


@quick
@given(batches())
def test_any_history_is_answered_as_the_model_does(make: Make, history: list[list[IdEvent]]) -> None:
    index, model = make(AMPLE), Model()
    for batch in history:
        assert index.check_and_add(batch) == [model.check_and_add(event) for event in batch]
    assert index.state()[0] == sum(map(len, model.landed.values()))


def test_out_of_room_the_oldest_go(make: Make) -> None:
    """It may only miss duplicates, and only of events at or before the time that it reports as forgotten."""
    most = 3 * 32 * 64 * 32  # thrice of what the map begins with
    index, known = make(most), range(6_000)
    times = [10 * (number * 7919 % 600) for number in known]
    names = [f"d.{number * 7919:032x}" for number in known]
    for number in known:
        assert index.check_and_add([IdEvent(names[number], times[number], number)]) == [False]
    size, taken, forgotten_to = index.state()
    assert taken <= most
    assert forgotten_to < max(times) - 500, "not the latest"
    held = [number for number in known if times[number] > forgotten_to]
    assert size >= len(held) > 1_000
    for number in held:
        assert index.check_and_add([IdEvent(names[number], times[number], 10_000 + number)]) == [True]


@pytest.mark.spark
def test_tasks_share_one_map(spark: SparkSession) -> None:
    """Four tasks bring each of 4,000 ids five times: one of the five is new, and a second pass gives the same answer."""
    recent = define(spark, "headrace_lake.dedup", "RecentIds")(HORIZON, AMPLE)
    spark._jsparkSession.udf().register("remembered", function_of(spark, recent))
    events = spark.range(0, 20_000, 1, 4).selectExpr(
        "id", "remembered(binary('d.' || lpad(lower(hex(id % 4000)), 32, '0')), id div 4000, id) as known"
    )
    new, again = ({row.id for row in events.where("not known").collect()} for _ in range(2))
    assert {place % 4_000 for place in new} == set(range(4_000))
    assert len(new) == recent.ids() == 4_000
    assert new == again
    recent.close()


@pytest.mark.spark
def test_a_source_that_does_not_compile_is_said_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_lake.spark.jvm._compiled", lambda *_: {"headrace.lake.Broken": b"nothing"})
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: "")
    with pytest.raises(CompilerError, match="ClassFormatError"):
        define(spark, "headrace_lake.dedup", "Broken")


@pytest.mark.spark
@pytest.mark.parametrize("named", [[], [(0, 5), (2, 6), (2, 7), (1, FAR - 3), (1, FAR)]], ids=["none", "some"])
def test_rows_are_marked_by_the_places_that_the_arrays_name(spark: SparkSession, named: list[tuple[int, int]]) -> None:
    rows = [(partition, offset) for partition in range(5) for offset in (*range(10), FAR - 3, FAR - 2, FAR - 1, FAR)]
    frame = spark.createDataFrame(rows, "partition int, offset long")
    marked = _marked(frame, sorted(partition << OFFSET_BITS | offset for partition, offset in named)).collect()
    assert {row[DUPLICATE] for row in marked} <= {True, False}, "never unknown"
    assert sorted((row["partition"], row["offset"]) for row in marked if row[DUPLICATE]) == sorted(named)


@pytest.mark.spark
def test_only_ids_of_ours_are_remembered(spark: SparkSession) -> None:
    """By both indexes, at the same time and place."""
    strange = [
        f"d.{digits}" for digits in ("A" * 32, "0" * 31 + "g", "0" * 31 + " ", "0" * 31, "", "\u00e9" * 16, "0" * 33)
    ]
    moment = datetime(2026, 5, 6, 12, 0, 0, 7999, tzinfo=UTC)
    known = [("d." + "0123456789abcdef" * 2, moment, 3, FAR), ("u." + "f" * 32, moment, 0, 7)]
    rows = [*known, *((name, moment, 0, 8 + number) for number, name in enumerate(strange))]
    for events in (rows, []):
        table = pa.Table.from_arrays(
            [pa.array([row[at] for row in events], kind) for at, kind in enumerate(KINDS)], names=[*ASKED]
        )
        found = id_rows(table)
        assert found.high.tolist() == [int(row[0][2:18], 16) for row in events[:2]]
        assert found.low.tolist() == [int(row[0][18:], 16) for row in events[:2]]
        assert found.time.tolist() == [int(row[1].timestamp() * 1000) for row in events[:2]]
        assert found.place.tolist() == [row[2] << OFFSET_BITS | row[3] for row in events[:2]]
    recent = define(spark, "headrace_lake.dedup", "RecentIds")(HORIZON, AMPLE)
    for name in strange:
        assert not any(recent.checkAndAdd(name.encode(), 0, place) for place in range(2))
    assert recent.ids() == 0
    recent.close()
