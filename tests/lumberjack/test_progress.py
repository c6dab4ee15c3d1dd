"""Whatever is stored when: no number that is said claims more than is stored."""

from __future__ import annotations

import random

from headrace_lumberjack.wire import compressed, json_frame, window
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lumberjack.driving import feed, parts_of, session
from tests.tiers import examples


@st.composite
def numbered(draw: st.DrawFn) -> tuple[bytes, list[list[int]]]:
    """Windows in which every event of the connection has a number of its own, framed in any way; and those numbers."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    windows = [list(range(100 * index, 100 * index + size)) for index, size in enumerate(sizes, 1)]
    frames = []
    for events in windows:
        frames.append(window(len(events)))
        frames += [json_frame(number, b'{"n":%d}' % number) for number in events]
    data = b""
    while frames:
        count = draw(st.integers(1, 8))
        piece = b"".join(frames[:count])
        data += compressed(piece) if draw(st.booleans()) else piece
        del frames[:count]
    return data, windows


@settings(max_examples=examples(5000))
@given(numbered(), st.integers(0, 2**32))
def test_nothing_is_acknowledged_that_is_not_stored(sent: tuple[bytes, list[list[int]]], seed: int) -> None:
    """Units are stored in pieces and in any order while time passes: no number that is said claims more than is stored."""
    data, windows = sent
    chance = random.Random(seed)
    driven = session()
    feed(driven, data)
    left = {}
    for frame in driven.frames():
        left[frame.ticket] = [part.json["n"] for part in parts_of(frame)]
    places = {number: index for index, events in enumerate(windows) for number in events}
    stored: set[int] = set()
    finals: list[int] = []
    now, counts = 100.0, dict.fromkeys(left, 0)
    while left:
        ticket = chance.choice(sorted(left))
        events = left[ticket]
        counts[ticket] = chance.randint(counts[ticket], len(events))
        stored.update(events[: counts[ticket]])
        driven.stored(ticket, counts[ticket], counts[ticket] == len(events))
        if counts[ticket] == len(events):
            del left[ticket]
        for _ in range(2):
            for number in numbers_in(driven.outgoing()):
                if number:
                    claimed = [n for n in places if n <= number]
                    assert stored.issuperset(claimed)
                    assert len(finals) == places[number]  # in order
                    if number == windows[len(finals)][-1]:
                        finals.append(number)
            now += chance.choice([0, 0.5, 1.1, 3.5])
            driven.tick(now)
    assert finals == [events[-1] for events in windows]
    assert driven.status().idle


def numbers_in(said: bytes) -> list[int]:
    return [int.from_bytes(said[at + 2 : at + 6], "big") for at in range(0, len(said), 6)]
