"""Any bytes give events, replies or a protocol error, nothing else; the same whole and byte by byte."""

from __future__ import annotations

import random

from headrace_lumberjack.wire import V1, V2, compressed, json_frame, pairs_frame, window
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lumberjack.driving import at_random, document, drive, feed, one_by_one, parts_of, session
from tests.tiers import examples

LIMITS = {
    "frame_bytes": 1024, "event_bytes": 1024, "inflated_bytes": 4096, "window_events": 8, "pairs": 4, "key_bytes": 8,
    "value_bytes": 64,
}  # fmt: skip

numbers = st.integers(0, 9) | st.sampled_from([2**32 - 2, 2**32 - 1])
documents = st.sampled_from(
    [document(), document(1, message=None), b"{}", b"{", b"[1]", b"", b'{"a":"\xff"}', b"[" * 900]
)
data_frames = st.builds(json_frame, numbers, documents) | st.builds(
    pairs_frame, numbers, st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=70)), max_size=5)
)
windows = st.builds(window, st.integers(0, 9) | numbers, st.sampled_from([V1, V2]))
plain = windows | data_frames
bundle = st.builds(
    compressed, st.lists(plain, max_size=4).map(b"".join), st.sampled_from([0, 3]), st.sampled_from([V1, V2])
)


@st.composite
def sound_windows(draw: st.DrawFn) -> bytes:
    """A complete window, in pieces of all kinds."""
    items = draw(st.lists(st.tuples(numbers, documents), max_size=6))
    first = draw(st.integers(0, 6))
    frames = [json_frame(number, raw) for number, raw in items]
    return window(len(items)) + b"".join(frames[:first]) + compressed(b"".join(frames[first:]))


stream = st.lists(plain | bundle | sound_windows() | st.binary(max_size=6), max_size=8).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stream with some bytes changed, or cut short."""
    data = bytearray(draw(stream))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@settings(max_examples=examples(5000))
@given(damaged() | st.binary(max_size=300), st.integers(0, 99))
def test_any_bytes_give_the_same_however_they_are_split(data: bytes, seed: int) -> None:
    whole = drive([data], **LIMITS)
    assert drive(one_by_one(data), **LIMITS).comparable() == whole.comparable()
    assert drive(at_random(data, random.Random(seed)), **LIMITS).comparable() == whole.comparable()


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
