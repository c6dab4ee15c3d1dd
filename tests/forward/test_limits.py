"""What hostile input may cost beside what `tests/protocols/test_cost.py` shows of all protocols."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
from collections.abc import Callable

import pytest
from headrace_common.operations.errors import ProtocolError

from tests.driving import feed, traced
from tests.forward.driving import NOW_MS, TIME, ack, drive, pack, session
from tests.fuzz.chance import flat
from tests.fuzz.subjects import made
from tests.tiers import sized

KIB = 1024
MIB = 1024 * KIB


def packed(*entries: bytes) -> bytes:
    return pack(["t", b"".join(entries), {"chunk": "c"}])


def listed(*entries: bytes) -> bytes:
    return b"\x93" + pack("t") + bytes((0x90 + len(entries),)) + b"".join(entries) + pack({"chunk": "c"})


def zipped(*entries: bytes) -> bytes:
    return pack(["t", gzip.compress(b"".join(entries), mtime=0), {"chunk": "c", "compressed": "gzip"}])


@pytest.mark.parametrize("form", [packed, listed, zipped])
def test_an_entry_that_arrives_too_large_is_not_decoded(form: Callable[..., bytes]) -> None:
    """A megabyte of msgpack can be sixty of Python's objects."""
    size, good = sized(256 * KIB, 4 * MIB, 4 * MIB), b"\x92" + pack(TIME) + pack({"m": 1})
    data = form(good, b"\x92" + pack(TIME) + b"\x81\xa1a\xdd" + size.to_bytes(4, "big") + b"\x90" * size, good)
    with traced():
        outcome = drive([data], event_bytes=size // 4)
        peak = tracemalloc.get_traced_memory()[1]
    assert (len(outcome.events), [reject.reason.value for reject in outcome.rejects]) == (2, ["oversized"])
    assert outcome.replies == [ack("c")]
    assert peak < 12 * len(data) + 10 * size


def test_the_memory_of_a_fault_is_given_back() -> None:
    """The connection may live on while earlier messages wait for Kafka."""
    driven = session(frame_bytes=2 * MIB, event_bytes=MIB)
    data = b"\x94\xa1t\x01\x81\xa1a\xc6\x00\xff\xff\xff" + b"x" * 3 * MIB
    with traced():
        with pytest.raises(ProtocolError, match="too large"):
            feed(driven, data)
        assert driven.status().partial_bytes == 0
        assert tracemalloc.get_traced_memory()[0] < 256 * KIB


def test_inflating_and_hashing_are_cut_into_steps() -> None:
    """A pause at least every MiB before the first part."""
    entry = b"\x92" + pack(TIME) + pack({"m": "x" * 900_000})
    driven = session()
    driven.receive(zipped(*[entry] * 8), NOW_MS)
    (frame,) = driven.frames()
    pauses = [run for run in frame.runs() if isinstance(run, int)]
    assert sum(pauses) == 8 * len(entry)
    assert max(pauses) <= MIB
    assert len(pauses) >= 2 * (8 * len(entry) // MIB)


@pytest.mark.parametrize("form", [packed, listed])
def test_a_slice_of_entries_is_bounded_in_bytes(form: Callable[..., bytes]) -> None:
    """Some entries of half a megabyte each are not decoded at once."""
    data = form(*[b"\x92" + pack(TIME) + pack({"m": "x" * 500_000})] * 15)
    driven = session()
    feed(driven, data)
    (frame,) = driven.frames()
    with traced():
        runs = iter(frame.runs())
        while isinstance(next(runs), int):
            pass
        first = tracemalloc.get_traced_memory()[1]
    assert first < 2 * len(data) + 4 * MIB  # the payload, twice while it is cut out, and little more


def test_every_frame_can_be_spoiled_and_comes_back_whole() -> None:
    """What the pump falls back on: it must not raise, and it keeps every byte."""
    seen = 0
    for number in range(sized(100, 1000, 5000)):
        _, sent, _ = made("forward", f"spoiled-{number}")
        driven, data = session(), flat(sent)
        with contextlib.suppress(ProtocolError):
            driven.receive(data, NOW_MS)
        for frame in driven.frames():
            assert frame.spoiled("a test").raw in data
            seen += 1
    assert seen
