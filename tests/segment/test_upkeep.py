"""From where the log is read, and who is asked meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from headrace_common.kafka.record_batch import BatchBuilder
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import CreateSegment, OutcomeUnknown
from headrace_segment.replica.owner import HELD_UP, FencedError, Owner, UnreadableError
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.records import Create

from tests.segment.instant import Hears


def owner(starts: list[int]) -> Owner:
    """It has read nothing. The log's records name these places to read it from."""

    async def read(offset: int, take: Any) -> None:
        for at in range(offset, len(starts)):
            if take(SimpleNamespace(offset=at, value=Create().encode(starts[at]))):
                break

    runtime: Any = SimpleNamespace(settings=SegmentSettings(), log=structlog.get_logger())
    made = Owner(runtime, SegmentMetrics(ReceiverMetrics()))
    made._reader = cast("Any", SimpleNamespace(read=read))
    return made


@pytest.mark.parametrize(
    ("starts", "first", "found"),
    [
        ([], 0, 0),
        ([0, 0, 0], 0, 0),
        ([0, 0, 2, 2], 0, 2),
        ([0, 0, 2, 2, 0], 2, 2),  # the last one is a claim that was made before the log was read
        ([0, 0, 2, 2, 0, 0, 0, 0], 2, 2),
        ([0, 0, 2], 1, 2),
        ([0, 0, 0], 1, None),
        ([0, 0, 0], 3, None),
    ],
)
async def test_where_the_log_is_read_from(starts: list[int], first: int, found: int | None) -> None:
    if found is not None:
        assert await owner(starts)._begin(first, len(starts)) == found
    else:
        with pytest.raises(UnreadableError, match=f"the log begins at {first}"):
            await owner(starts)._begin(first, len(starts))


async def test_an_owner_that_was_held_up_does_not_trust_its_epoch() -> None:
    """A broker forgets it after a day, if the owner after it has stopped meanwhile, and would store what contradicts the log."""
    held_up = owner([])
    held_up.live.set()
    held_up._stored -= HELD_UP
    with pytest.raises(FencedError):
        await held_up._store(cast("Any", None), BatchBuilder())


async def test_who_asks_a_process_that_does_not_own_the_segments_ends_and_comes_again() -> None:
    caller = Hears()
    owner([]).ask(CreateSegment(1, "s"), caller)
    assert caller.takes() == ["log", (1, OutcomeUnknown())]
