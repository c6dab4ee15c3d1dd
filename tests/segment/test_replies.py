"""What is kept in memory: replies, who has room for one, who waits, who is passed over; and the newest blocks."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from headrace_common.connection.backend import Caller
from headrace_segment.replica.replies import SHARE, STALL, TAKEN, ReplyMemory
from headrace_segment.store.recent import RecentBlocks
from typing_extensions import override

from tests.driving import traced
from tests.segment.instant import Hears


class Reads(Hears):
    """`left`: what it has not taken."""

    left = 0

    @override
    def unread(self) -> int:
        return self.left


class Bench:
    """A memory of 100 bytes."""

    def __init__(self) -> None:
        self.crowded = 0
        self.memory = ReplyMemory(100, self._crowded)
        self.order: list[str] = []

    def _crowded(self) -> None:
        self.crowded += 1

    def waits(self, caller: Hears, size: int) -> asyncio.Task[Any]:
        async def wait() -> None:
            await self.memory.room(caller, size)
            self.order.append(caller.peer.address)

        return asyncio.create_task(wait())


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_gives_up_keeps_nobody_behind_it() -> None:
    """It waited for more than there was room for; those behind it waited on until some reply had left."""
    bench = Bench()
    await bench.memory.room(Hears("a"), 60)
    large, small = bench.waits(Hears("b"), 60), bench.waits(Hears("c"), 10)
    await turn()
    assert bench.order == []
    large.cancel()
    await turn()
    assert bench.order == ["c"]
    await small


async def test_beyond_it_they_come_in_order() -> None:
    bench = Bench()
    first, *others = (Hears(name) for name in "abcd")
    await bench.memory.room(first, 100)
    tasks = [bench.waits(caller, size) for caller, size in zip(others, (60, 50, 10), strict=True)]
    await turn()
    assert (bench.memory.waiting, bench.crowded, bench.order) == (3, 3, [])
    bench.memory.release(first, 50)
    await turn()
    assert bench.order == []  # the first of them has no room, and nobody passes it
    assert not bench.memory.take(Hears("e"), 1)
    bench.memory.release(first, 10)
    await turn()
    assert (bench.order, bench.memory.used) == (["b"], 100)
    bench.memory.ended(first)
    await turn()
    assert bench.order == ["b"]
    bench.memory.ended(others[0])
    await asyncio.gather(*tasks)
    assert bench.order == ["b", "c", "d"]
    assert bench.memory.used == 60


async def test_who_holds_something_gets_nothing_of_the_second_half() -> None:
    bench = Bench()
    greedy, modest = Hears("greedy"), Hears("modest")
    assert bench.memory.take(greedy, 30)
    assert bench.memory.take(greedy, 20)
    assert not bench.memory.take(greedy, 1)
    waiting = bench.waits(greedy, 30)
    await turn()
    await bench.memory.room(modest, 50)  # passes it
    bench.memory.release(modest, 50)
    bench.memory.release(greedy, 29)
    await turn()
    assert not waiting.done()
    bench.memory.release(greedy, 1)
    await waiting
    assert bench.memory.used == 50


async def test_one_reply_always_fits() -> None:
    bench = Bench()
    assert bench.memory.take(Hears("a"), 1000)
    assert not bench.memory.take(Hears("b"), 1)


async def test_who_gives_up_waiting_holds_nothing() -> None:
    bench = Bench()
    one, other, third = Hears("one"), Hears("other"), Hears("third")
    await bench.memory.room(one, 100)
    cancelled, late = bench.waits(other, 100), bench.waits(third, 100)
    await turn()
    cancelled.cancel()
    await turn()
    assert bench.memory.waiting == 1
    bench.memory.ended(one)
    late.cancel()  # when it has been granted already
    await turn()
    assert (bench.memory.used, bench.memory.waiting, bench.order) == (0, 0, [])


async def test_any_number_that_reads_nothing_leaves_room_for_others() -> None:
    """Each asks for four replies of 2 MiB and takes none."""
    memory = ReplyMemory(64 << 20, lambda: None)
    deaf = [Reads(str(number)) for number in range(1000)]
    for caller in deaf:
        for _ in range(4):
            caller.left += memory.take(caller, 2 << 20)
    assert memory.used <= memory.limit
    assert memory.take(Reads("honest"), 1000) == 1000
    assert memory.take(Reads("honest"), 2 << 20) == SHARE


async def test_beyond_the_memory_who_takes_nothing_is_cut_and_only_they() -> None:
    memory = ReplyMemory(64 << 20, lambda: None)
    deaf, slow, waits = [Reads(str(number)) for number in range(5000)], Reads("slow"), Reads("waits on us")
    slow.left += memory.take(slow, 2 << 20)
    memory.take(waits, 1000)  # its reply is not read from the log yet
    for caller in deaf:
        caller.left += memory.take(caller, 2 << 20)
    late = asyncio.create_task(memory.room(Reads("late"), 2 << 20))
    await turn()
    assert not late.done()
    cut: list[Caller] = []
    for second in range(10):
        slow.left -= TAKEN // 2
        cut += (stalled := memory.stalled(second))
        for gone in stalled:
            memory.ended(gone)
        await turn()
        if late.done():
            break
    assert set(cut) == {caller for caller in deaf if caller.left}
    assert second == STALL
    assert await late == SHARE  # in the second half yet


async def test_who_takes_nothing_may_while_nobody_needs_room() -> None:
    memory = ReplyMemory(64 << 20, lambda: None)
    deaf = Reads("deaf")
    deaf.left += memory.take(deaf, 2 << 20)
    assert not [caller for second in range(100) for caller in memory.stalled(second)]


async def test_who_reads_fast_is_not_cut_for_looking_the_same_each_time() -> None:
    memory = ReplyMemory(100, lambda: None)
    fast = Reads("fast")
    for second in range(100):
        fast.left = memory.take(fast, 100)
        assert not memory.take(Reads("other"), 10)
        assert memory.stalled(second) == []
        memory.left(fast, 100)


async def test_what_ends_is_given_back_once() -> None:
    bench = Bench()
    caller, other = Hears("a"), Hears("b")
    assert bench.memory.take(caller, 40)
    assert bench.memory.take(other, 40)
    bench.memory.ended(caller)
    bench.memory.release(caller, 40)  # its read ends after it
    assert bench.memory.used == 40


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


def test_large_blocks_fill_it() -> None:
    recent = RecentBlocks(LIMIT)
    for number in range(32):
        recent.add("s", number << 16, bytes(1 << 16))
    assert recent.read("s", 18 << 16, 32 << 16) == bytes(14 << 16)
    assert recent.read("s", 15 << 16, 1) is None


def test_what_is_deleted_and_made_anew_is_counted_once() -> None:
    recent = RecentBlocks(LIMIT)
    for _ in range(1000):
        recent.add("s", 0, bytes(1 << 16))
        recent.drop("s")
    recent.add("s", 0, b"new")
    assert recent.read("s", 0, 9) == b"new"
    recent.add("t", 0, bytes(LIMIT))  # all others leave, and it, too
    assert recent.read("s", 0, 9) is None
    recent.add("s", 3, b"er")
    assert recent.read("s", 3, 9) == b"er"
