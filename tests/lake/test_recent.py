"""The arrays of recent ids against a naive model: histories, expiry, the bound on memory."""

from __future__ import annotations

import numpy as np
from headrace_lake.memory import ELSEWHERE, OFFSET_BITS, Kind
from headrace_lake.recent import RecentArrays, Rows
from hypothesis import given
from hypothesis import strategies as st

from tests.lake.histories import HORIZON, Asked, Model, batches, rows

AMPLE = 1 << 20


@given(batches())
def test_any_history_is_judged_as_the_model_does(history: list[list[Asked]]) -> None:
    memory, model = RecentArrays(HORIZON, AMPLE), Model()
    for batch in history:
        expected = [model.judge(event) for event in batch]
        assert memory.judge(rows(batch)).tolist() == expected
    assert memory.state().ids == sum(map(len, model.landed.values()))
    assert memory.uniques == sum(len(entries) for name, entries in model.landed.items() if name[0] == "u")


@given(batches(), batches())
def test_what_the_table_holds_is_remembered_as_if_judged(before: list[list[Asked]], after: list[list[Asked]]) -> None:
    memory, model = RecentArrays(HORIZON, AMPLE), Model()
    landed = [event._replace(kind=Kind.LANDED) for batch in before for event in dict.fromkeys(batch)]
    landed = list({(event.id, event.time, event.place): event for event in landed}.values())
    for event in landed:
        assert not model.judge(event)
    memory.remember(rows(landed[::2]))
    memory.remember(rows(landed[1::2]))
    memory.remember(rows(landed[:3]))  # once more
    assert memory.state().ids == len(landed)
    for batch in after:
        assert memory.judge(rows(batch)).tolist() == [model.judge(event) for event in batch]


@given(st.data())
def test_expiry_changes_no_answer_at_or_above_the_low_water(data: st.DataObject) -> None:
    memory, model = RecentArrays(HORIZON, 48 * 8), Model()  # room for eight: expiry is all that it lives by
    offset = 0
    for low_water in range(0, 400, HORIZON + 1):
        memory.expire(low_water - HORIZON)
        for _ in range(data.draw(st.integers(0, 2))):
            name = f"d.{data.draw(st.integers(0, 2)):032x}"
            event = Asked(name, low_water + data.draw(st.integers(0, HORIZON)), offset, Kind.ORDINARY)
            offset += 1
            assert memory.judge(rows([event])).tolist() == [model.judge(event)]
    assert memory.state().forgotten == 0
    assert memory.state().ids <= 8


@given(st.lists(batches((0, 300)), min_size=1, max_size=4), st.integers(1, 40))
def test_out_of_room_it_loses_no_event_and_tells_what_it_still_can(parts: list, most: int) -> None:
    """It may only land a duplicate, and only of what went at or before the time that it admits to."""
    memory, model = RecentArrays(HORIZON, 48 * most), Model()
    offset = 0
    for batch in (batch for part in parts for batch in part):
        for event in batch:
            asked = event._replace(place=offset)  # no retries: the very record may have been forgotten
            offset += 1
            near = model.near(asked)
            (duplicate,) = memory.judge(rows([asked])).tolist()
            if duplicate:
                assert near
                continue
            forgotten_to = memory.state().forgotten_to
            assert all(forgotten_to is not None and time <= forgotten_to for time in near)
            if asked.kind != Kind.UNIQUE:
                model.landed.setdefault(asked.id, []).append((asked.time, asked.place))
            assert memory.state().ids <= most
    landed = sum(map(len, model.landed.values()))
    state = memory.state()
    assert state.ids + state.forgotten == landed
    assert state.bytes <= 48 * most


@given(batches(), st.sets(st.integers(0, 71)))
def test_what_was_no_event_hides_none(history: list[list[Asked]], no_events: set[int]) -> None:
    """Asked for with the rest, then forgotten: of the others, each that is a duplicate has one near it that is none."""
    memory = RecentArrays(HORIZON, AMPLE)
    landed: set[Asked] = set()
    for batch in history:
        events = [event for event in batch if event.place & ((1 << OFFSET_BITS) - 1) not in no_events]
        memory.judge(rows(batch))
        memory.forget(rows(event for event in batch if event not in events).place)
        duplicates = dict(zip(events, memory.judge(rows(events)).tolist(), strict=True))
        landed |= {event for event, duplicate in duplicates.items() if not duplicate}
        for event, duplicate in duplicates.items():
            near = [
                other for other in landed
                if other.id == event.id and other.place != event.place and abs(other.time - event.time) <= HORIZON
                and other.kind != Kind.UNIQUE
            ]  # fmt: skip
            assert bool(near) == duplicate or (event.kind == Kind.UNIQUE and event in landed)
    remembered = {event for event in landed if event.kind != Kind.UNIQUE}
    assert memory.state().ids == len(remembered)
    assert memory.uniques == sum(event.id[0] == "u" for event in remembered)


def test_the_horizon_has_two_sides_to_the_millisecond() -> None:
    memory = RecentArrays(3_600_000, AMPLE)
    first = Asked("d." + "0" * 32, 1_770_000_000_000, 0, Kind.ORDINARY)
    assert memory.judge(rows([first])).tolist() == [False]
    edges = [-3_600_001, -3_600_000, 3_600_000, 3_600_001]
    asked = [first._replace(time=first.time + edge, place=1 + index) for index, edge in enumerate(edges)]
    assert memory.judge(rows(asked)).tolist() == [False, True, True, False]


def test_places_of_topics_that_are_no_more_are_no_records_place() -> None:
    memory = RecentArrays(HORIZON, AMPLE)
    gone = [Asked("d." + "0" * 32, time, ELSEWHERE, Kind.LANDED) for time in (0, 100)]
    memory.remember(rows(gone))
    assert memory.state().ids == 2
    assert memory.judge(rows([Asked("d." + "0" * 32, 100, 0, Kind.ORDINARY)])).tolist() == [True]


def test_many_batches_leave_few_runs() -> None:
    """So that an id costs the same however many are held."""
    rng = np.random.default_rng(7)
    memory = RecentArrays(HORIZON, 1 << 30)
    for number in range(100):
        high, low = (rng.integers(0, 1 << 63, 1000, np.uint64) for _ in range(2))
        places = np.arange(number * 1000, (number + 1) * 1000)
        batch = Rows(high, low, np.zeros(1000, np.int64), places, np.zeros(1000, np.int8))
        assert not memory.judge(batch).any()
        assert not memory.judge(batch).any(), "the same records again"
        batch.place += 1 << 20
        assert memory.judge(batch).all(), "the same ids elsewhere"
    assert memory.state().ids == 100_000
    assert len(memory._runs) <= 8


def test_an_empty_batch_is_nothing() -> None:
    memory = RecentArrays(HORIZON, AMPLE)
    assert memory.judge(rows([])).tolist() == []
    memory.remember(rows([]))
    assert memory.state() == (0, 0, 0, None)
