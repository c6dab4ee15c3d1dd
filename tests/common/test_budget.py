"""Bytes in flight: what each limit does, and that no order of events can leave everybody waiting for nothing."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from headrace_common.fairness.budget import FEW, LITTLE, READ, Budget
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.slowly import SlowLoop
from tests.tiers import examples

LOOP = SlowLoop


class Reader:
    """As a connection: reads while it may, and looks again when it is told to."""

    def __init__(self, budget: Budget, *, has_stored: bool = False) -> None:
        self.budget = budget
        self.has_stored = has_stored
        self.partial_bytes = self.pending = self.last_read = 0
        self.frames: deque[int] = deque()
        self.reading, self.gone, self.digests = True, False, False

    def pace(self) -> None:
        may = self.budget.may_digest if self.digests else self.budget.may_read
        self.reading = not self.gone and may(self)

    def receive(self, size: int) -> None:
        """More of an unfinished frame."""
        self.budget.hold(self, self.partial_bytes + size)
        self.pace()

    def complete(self, rest: int = 0) -> None:
        """The frame is whole; with `rest` bytes of the next one behind it."""
        size = max(1, self.partial_bytes)
        self.frames.append(size)
        surely = self.budget.charge(self, size)
        if rest:
            self.budget.restart(self)
        self.budget.hold(self, rest)
        self.pace()
        assert self.reading or rest or not surely, "told that it surely may read on"

    def stored(self) -> None:
        self.budget.release(self, self.frames.popleft())

    def close(self) -> None:
        self.gone = True
        self.reading = False
        self.budget.forget(self)


async def settle() -> None:
    """Lets what was called soon run."""
    for _ in range(3 * READERS):  # of a few that begin to read again in each turn
        await asyncio.sleep(0)


# Thousands of connections; each that is read brings `READ` bytes at once, as the event loop hands them over

SIZE = 256 << 20


def crowd(budget: Budget, number: int, *, has_stored: bool) -> list[Reader]:
    readers = [Reader(budget, has_stored=has_stored) for _ in range(number)]
    for reader in readers:
        reader.pace()
    return readers


def bring(readers: list[Reader]) -> None:
    """All sockets are found readable at the same moment; who was stopped meanwhile is not read."""
    for reader in readers:
        if reader.reading:
            reader.receive(READ)


@pytest.mark.parametrize("has_stored", [False, True])
async def test_each_of_a_crowd_is_read_in_its_turn(has_stored: bool) -> None:
    """All resume, and the first that are read stop them again: they always were the same."""
    readers = crowd(Budget(16 * READ, 16 * READ), 40, has_stored=has_stored)
    read: list[Reader] = []
    stored = 0
    for _ in range(80):
        for reader in sorted(filter(lambda each: each.reading, readers), key=lambda each: each.last_read):
            if reader.reading:  # it was not stopped meanwhile
                reader.receive(READ)
                read.append(reader)
                reader.complete()
        for reader in read[stored : stored + 2]:
            reader.stored()
            stored += 1
        await settle()
    assert {*read} == {*readers}
    assert max(map(read.count, readers)) <= min(map(read.count, readers)) + 2


@pytest.mark.parametrize("has_stored", [False, True])
async def test_a_crowd_is_stopped_at_once_at_its_share(has_stored: bool) -> None:
    """Nor does one of beginnings shut out who is known."""
    budget = Budget(SIZE, SIZE // 4)
    readers, (other,) = crowd(budget, 2000, has_stored=has_stored), crowd(budget, 1, has_stored=True)
    bring(readers)
    assert budget.paused >= 2000 - 2  # at once
    for _ in range(20):
        full = next(reader for reader in readers if reader.partial_bytes)
        full.complete()
        full.stored()
        await asyncio.sleep(0)
        bring(readers)
        assert budget.partial_bytes <= SIZE // 2 + READ + max(reader.partial_bytes for reader in readers)
        if not has_stored:
            assert other.reading
            other.receive(SIZE // 4 // LITTLE - 1)
            assert other.reading
            other.receive(1)
            assert not other.reading
            other.complete()
            other.stored()


@pytest.mark.parametrize(
    ("pending", "partial", "welcomed"), [(79, 1, True), (80, 1, False), (0, 69, True), (0, 70, False), (11, 69, False)]
)
async def test_a_new_connection_is_welcome_below_the_limits(pending: int, partial: int, welcomed: bool) -> None:
    """All arrivals have 80 bytes, unfinished frames of unknown connections but the oldest 70."""
    budget = Budget(160, 80)
    oldest, other, third = crowd(budget, 3, has_stored=False)
    oldest.receive(1)
    other.receive(partial)
    budget.charge(third, pending - (partial == 1))
    assert budget.welcomes() is welcomed
    budget.release(third, third.pending)
    other.close()
    assert budget.welcomes()


async def test_nobody_digests_beyond_what_kafka_has_to_take() -> None:
    """But few bytes, as if they had arrived while there was time left to parse them at once."""
    budget = Budget(20 * FEW, 10 * FEW)
    one, other, few = readers = [Reader(budget) for _ in range(3)]
    for reader in readers:
        reader.digests = True
    budget.charge(one, 10 * FEW)
    budget.hold(other, FEW + 1)
    budget.hold(few, FEW)
    assert not budget.may_digest(one)
    assert not budget.may_digest(other)  # the arrivals' half is full
    assert budget.may_digest(few)
    assert not budget.may_read(few)
    budget.release(one, 10 * FEW)
    assert budget.may_digest(one)
    await settle()
    assert other.reading


READERS = 4
FRAME = 90
actions = st.lists(
    st.tuples(
        st.sampled_from(["receive", "receive", "complete", "rest", "store", "turn", "close", "nudge", "digest"]),
        st.integers(0, READERS - 1),
        st.integers(1, FRAME),
    ),
    max_size=80,
)


@settings(max_examples=examples(1000))
@given(actions, st.sampled_from([(400, 200), (400, 90), (720, 90), (2000, 180)]))
def test_somebody_reads_or_something_is_pending(steps: list[tuple[str, int, int]], sizes: tuple[int, int]) -> None:
    """Whatever arrives, is stored and goes away in any order: when all wait, then for Kafka; and in the end all is done."""
    asyncio.run(_model(steps, *sizes))


async def _model(steps: list[tuple[str, int, int]], process: int, connection: int) -> None:
    budget = Budget(process, connection)
    readers = [Reader(budget, has_stored=number % 2 == 0) for number in range(READERS)]
    for action, number, size in steps:
        reader = readers[number]
        if action == "turn":
            await settle()
        elif action == "nudge":
            reader.pace()
        elif action == "digest":
            reader.digests = not reader.digests and not reader.gone
            reader.pace()
        elif action == "store" and reader.frames:
            reader.stored()
        elif action == "close" and number == 0:
            reader.close()
        elif not reader.reading:
            continue
        elif action == "receive" and reader.partial_bytes + size <= FRAME:
            reader.receive(size)
        elif action in ("complete", "rest"):
            reader.complete(size * (action == "rest"))
        assert budget.partial_bytes == sum(reader.partial_bytes for reader in readers)
        assert budget.pending == sum(sum(reader.frames) for reader in readers)
    living = [reader for reader in readers if not reader.gone]
    await settle()
    for _ in range(1000):
        if not budget.used:
            break
        for reader in living:
            if reader.reading and reader.digests:  # it has parsed all
                reader.digests = False
                reader.pace()
        await settle()
        busy = next((reader for reader in living if reader.reading and reader.partial_bytes), None)
        if busy is not None:
            busy.complete()
        else:  # all wait: for Kafka
            next(reader for reader in readers if reader.frames).stored()
        await settle()
        assert any(reader.reading for reader in living) or any(reader.frames for reader in readers) or not living
    for reader in living:
        reader.digests = False
        assert reader.reading, readers
    assert (budget.used, budget.paused) == (0, 0)
