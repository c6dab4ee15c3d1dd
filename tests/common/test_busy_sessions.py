"""Sessions that do long work in parts: who may go on, when memory is short."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from headrace_common.fairness.budget import Budget

PROCESS, CONNECTION = 800, 400
SHARE = 200
"""What unfinished frames may take: a quarter of the process budget."""


@dataclass(eq=False)
class Holder:
    """A connection, as far as the budget sees one."""

    budget: Budget
    partial_bytes: int = 0
    pending: int = 0
    has_stored: bool = False
    digests: bool = False
    allowed: list[bool] = field(default_factory=list)

    def pace(self) -> None:
        self.allowed.append(self.budget.may_digest(self) if self.digests else self.budget.may_read(self))


async def test_the_first_that_digests_goes_on_whatever_is_unfinished() -> None:
    budget = Budget(PROCESS, CONNECTION)
    unfinished, first, second = (Holder(budget) for _ in range(3))
    budget.hold(unfinished, 150)
    assert budget.may_digest(first)
    budget.hold(first, 30)
    assert budget.may_digest(second)
    budget.hold(second, 30)  # now it is crowded
    assert budget.may_read(unfinished)  # the oldest that waits for its client
    assert budget.may_digest(first)
    assert not budget.may_digest(second)
    first.digests = second.digests = True
    waiting = Holder(budget)
    budget.hold(waiting, 20)
    assert not budget.may_read(waiting)
    budget.hold(waiting, 0)
    budget.hold(first, 0)  # it is done: what it held has become a frame
    first.digests = False
    budget.charge(first, 30)
    assert budget.may_digest(second)
    await asyncio.sleep(0)


@pytest.mark.parametrize("gone", [False, True])
async def test_who_waits_to_digest_is_called_when_the_first_is_done_or_gone(gone: bool) -> None:
    budget = Budget(PROCESS, CONNECTION)
    unfinished, first, second = Holder(budget), Holder(budget, digests=True), Holder(budget, digests=True)
    budget.hold(unfinished, SHARE)
    assert budget.may_digest(first)
    assert not budget.may_digest(second)
    if gone:
        budget.forget(first)
    else:
        first.digests = False
        assert budget.may_read(first)  # it holds nothing
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert second.allowed == [True]


async def test_nobody_digests_beyond_what_kafka_has_to_take() -> None:
    budget = Budget(PROCESS, CONNECTION)
    one, other = Holder(budget, digests=True), Holder(budget, digests=True)
    budget.charge(one, CONNECTION)
    assert not budget.may_digest(one)
    assert not budget.may_digest(other)  # the arrivals' half is full
    budget.release(one, CONNECTION)
    assert budget.may_digest(one)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert other.allowed == [True]
