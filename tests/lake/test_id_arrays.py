"""`IdArrays` against a naive model: histories, expiry, and the limit of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from headrace_lake.dedup.id_arrays import IdArrays, IdRows
from headrace_lake.dedup.index import ELSEWHERE, IdKind
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lake.histories import HORIZON, IdEvent, Model, batches, rows

AMPLE = 1 << 20


@settings(deadline=None)
@given(batches())
def test_any_history_is_answered_as_the_model_does(history: list[list[IdEvent]]) -> None:
    arrays, model = IdArrays(HORIZON, AMPLE), Model()
    for batch in history:
        expected = [model.check_and_add(event) for event in batch]
        assert arrays.check_and_add(rows(batch)).tolist() == expected
    assert arrays.state().ids == sum(map(len, model.landed.values()))
    assert arrays.uniques == sum(len(entries) for name, entries in model.landed.items() if name[0] == "u")


@settings(deadline=None)
@given(batches(), batches())
def test_what_the_table_holds_is_remembered_as_if_checked(
    before: list[list[IdEvent]], after: list[list[IdEvent]]
) -> None:
    arrays, model = IdArrays(HORIZON, AMPLE), Model()
    landed = [event._replace(kind=IdKind.LANDED) for batch in before for event in dict.fromkeys(batch)]
    landed = list({(event.id, event.time, event.place): event for event in landed}.values())
    for event in landed:
        assert not model.check_and_add(event)
    arrays.add(rows(landed[::2]))
    arrays.add(rows(landed[1::2]))
    arrays.add(rows(landed[:3]))  # once more
    assert arrays.state().ids == len(landed)
    for batch in after:
        assert arrays.check_and_add(rows(batch)).tolist() == [model.check_and_add(event) for event in batch]


@settings(deadline=None)
@given(st.lists(batches((0, 300)), min_size=1, max_size=4), st.integers(1, 40))
def test_out_of_room_it_loses_no_event_and_tells_what_it_still_can(parts: list[Any], most: int) -> None:
    """It may only miss duplicates, and only of events at or before the time that it reports as forgotten."""
    arrays, model = IdArrays(HORIZON, 48 * most), Model()
    offset = 0
    for batch in (batch for part in parts for batch in part):
        for event in batch:
            asked = event._replace(place=offset)  # a new place, because the index may have forgotten this very record
            offset += 1
            near = model.near(asked)
            (duplicate,) = arrays.check_and_add(rows([asked])).tolist()
            if duplicate:
                assert near
                continue
            forgotten_to = arrays.state().forgotten_to
            assert all(forgotten_to is not None and time <= forgotten_to for time in near)
            if asked.kind != IdKind.UNIQUE:
                model.landed.setdefault(asked.id, []).append((asked.time, asked.place))
            assert arrays.state().ids <= most
    assert arrays.state().bytes <= 48 * most


def test_places_of_topics_that_are_no_more_are_no_records_place() -> None:
    arrays = IdArrays(HORIZON, AMPLE)
    gone = [IdEvent("d." + "0" * 32, time, ELSEWHERE, IdKind.LANDED) for time in (0, 100)]
    arrays.add(rows(gone))
    assert arrays.state().ids == 2
    assert arrays.check_and_add(rows([IdEvent("d." + "0" * 32, 100, 0, IdKind.ORDINARY)])).tolist() == [True]


def test_many_batches_leave_few_runs() -> None:
    """So that the cost of an id does not depend on how many the index holds."""
    rng = np.random.default_rng(7)
    arrays = IdArrays(HORIZON, 1 << 30)
    for number in range(100):
        high, low = (rng.integers(0, 1 << 63, 1000, np.uint64) for _ in range(2))
        places = np.arange(number * 1000, (number + 1) * 1000)
        batch = IdRows(high, low, np.zeros(1000, np.int64), places, np.zeros(1000, np.int8))
        assert not arrays.check_and_add(batch).any()
        assert not arrays.check_and_add(batch).any(), "the same records again"
        batch.place += 1 << 20
        assert arrays.check_and_add(batch).all(), "the same ids elsewhere"
    assert arrays.state().ids == 100_000
    assert len(arrays._runs) <= 8
