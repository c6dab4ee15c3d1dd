"""Reads: what all replies together hold in memory, and that none waits for another connection's; and the newest blocks."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any, cast

import pytest
import structlog
from headrace_segment.questions import BytesRead, ReadBytes
from headrace_segment.replica.reading import SHARE, Readers, RecentBlocks
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.fold import Fold, Segment
from headrace_segment.store.records import Block

from tests.driving import traced
from tests.segment.instant import Hears
from tests.segment.recorded import W1

MIB = 1 << 20


class Bench:
    """A segment of 4 MiB, all of which is in memory."""

    def __init__(self) -> None:
        self.readers = Readers(cast("Any", None), SegmentSettings(), structlog.get_logger())
        fold = Fold()
        self.segment = fold.segments["s"] = Segment()
        self.readers.owns(fold)
        self.grows(4 * MIB)

    def grows(self, size: int) -> None:
        self.readers.stored([("s", self.segment.length, Block(W1, 0, size, bytes(size)))])
        self.segment.length += size

    async def asks(self, caller: Hears, offset: int = 0, length: int = 2 * MIB) -> list[int]:
        """How many bytes the caller has heard by then, reply by reply."""
        self.readers.ask(ReadBytes(1, "s", offset, length), caller)
        return await self.hears(caller)

    async def hears(self, caller: Hears) -> list[int]:
        for _ in range(10):
            await asyncio.sleep(0)
        return [len(answer.data) for _, answer in caller.takes() if isinstance(answer, BytesRead)]


async def test_any_number_that_take_nothing_leave_room_for_others() -> None:
    bench, deaf = Bench(), [Hears(str(number)) for number in range(1000)]
    for caller in deaf:
        for _ in range(4):
            await bench.asks(caller)
    assert bench.readers.used <= 64 * MIB + len(deaf) * SHARE
    assert await bench.asks(Hears("honest")) == [SHARE]
    for caller in deaf:
        bench.readers.ended(caller)
    assert bench.readers.used == SHARE
    assert await bench.asks(Hears("another")) == [2 * MIB]


async def test_a_connection_has_one_reply_with_bytes_at_once() -> None:
    bench, caller, other = Bench(), Hears("a"), Hears("b")
    assert await bench.asks(caller, length=100) == [100]
    assert await bench.asks(caller, length=50) == []
    assert await bench.asks(other, length=70) == [70]
    bench.readers.left(caller)
    assert await bench.asks(caller, length=30) == [50]
    bench.readers.left(caller)
    bench.readers.ended(other)
    assert await bench.hears(caller) == [30]
    assert bench.readers.used == 30


async def test_a_read_of_no_bytes_is_answered() -> None:
    assert await Bench().asks(Hears("a"), length=0) == [0]


async def test_who_reads_at_the_end_hears_what_comes() -> None:
    bench, caller, other = Bench(), Hears("a"), Hears("b")
    for each in (caller, other):
        assert await bench.asks(each, offset=4 * MIB) == []
    bench.grows(10)
    assert (await bench.hears(caller), await bench.hears(other)) == ([10], [10])
    assert await bench.asks(other, offset=4 * MIB + 10) == []
    bench.readers.lost()
    assert (caller.takes(), other.takes()) == ([], ["log"]), "it ends who has a read under way, and nobody else"


async def test_who_ends_while_it_waits_gives_all_back() -> None:
    bench, caller = Bench(), Hears("a")
    await bench.asks(caller)
    await bench.asks(caller)
    await bench.asks(caller, offset=4 * MIB)
    bench.readers.ended(caller)
    await asyncio.sleep(0.01)
    bench.readers.left(caller)
    assert bench.readers.used == 0
    assert bench.readers._connections == {}


# The newest blocks

LIMIT = 1 << 20


@pytest.mark.parametrize("segments", [1, 20_000])
def test_small_blocks_cost_no_more_than_the_limit(segments: int) -> None:
    """A client chooses how small they are, and in how many segments."""
    recent = RecentBlocks(LIMIT)
    names = [f"segment-{number}" for number in range(segments)]
    with traced():
        for number in range(20_000):
            recent.add(names[number % segments], 8 * (number // segments), number.to_bytes(8, "big"))
        held, _ = tracemalloc.get_traced_memory()
    assert held < 1.5 * LIMIT
    last = 8 * (19_999 // segments)
    assert recent.read(names[19_999 % segments], last, 8) == (19_999).to_bytes(8, "big")
