"""Random histories of events for an index of ids, and a naive model that says which of them are duplicates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from headrace_lake.dedup.id_arrays import IdRows
from headrace_lake.dedup.index import OFFSET_BITS, IdKind
from hypothesis import strategies as st

HORIZON = 10


class IdEvent(NamedTuple):
    """One event in the form that an index gets."""

    id: str
    time: int
    place: int
    kind: int


@dataclass
class Model:
    """A dictionary of lists that forgets nothing."""

    horizon: int = HORIZON
    landed: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def check_and_add(self, event: IdEvent) -> bool:
        entries = self.landed.setdefault(event.id, [])
        if (event.time, event.place) in entries:
            return False
        if event.kind != IdKind.LANDED and self.near(event):
            return True
        if event.kind != IdKind.UNIQUE:
            entries.append((event.time, event.place))
        return False

    def near(self, event: IdEvent) -> list[int]:
        """The times of landed events that make this one a duplicate."""
        return [time for time, _ in self.landed.get(event.id, []) if abs(time - event.time) <= self.horizon]


# equal except for a few digits, like the ids of one frame; the same digits with both prefixes
IDS = [f"{kind}.{'0' * 15}{high}{'f' * 15}{low}" for kind in "du" for high in "01" for low in "01a"]


@st.composite
def batches(draw: st.DrawFn, times: tuple[int, int] = (0, 60)) -> list[list[IdEvent]]:
    """Batches of events, each at its own place; some batches come again, as after a crash."""
    made: list[list[IdEvent]] = []
    offset = 0
    for _ in range(draw(st.integers(1, 6))):
        if len(made) > 0 and draw(st.booleans()):
            again = draw(st.sampled_from(made))
            made.append(draw(st.permutations(again)))
            continue
        batch = []
        for _ in range(draw(st.integers(0, 12))):
            name = draw(st.sampled_from(IDS))
            kind = draw(st.sampled_from([IdKind.REPUBLISHED, IdKind.UNIQUE if name[0] == "u" else IdKind.ORDINARY]))
            place = draw(st.integers(0, 3)) << OFFSET_BITS | offset
            batch.append(IdEvent(name, draw(st.integers(*times)), place, kind))
            offset += 1
        made.append(batch)
    return made


def rows(events: Iterable[IdEvent]) -> IdRows:
    """The events in the form that `IdArrays` takes: the place of a `u.` id is negative."""
    listed = list(events)
    return IdRows(
        np.array([int(event.id[2:18], 16) for event in listed], np.uint64),
        np.array([int(event.id[18:], 16) for event in listed], np.uint64),
        np.array([event.time for event in listed], np.int64),
        np.array([event.place - (1 << 63 if event.id[0] == "u" else 0) for event in listed], np.int64),
        np.array([event.kind for event in listed], np.int8),
    )
