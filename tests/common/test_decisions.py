"""The four decisions behind an acknowledgement (docs/architecture.md): each is broken on purpose, and a named test fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.common import test_delivery as delivery
from tests.common import test_ledger as ledger
from tests.common import test_pump as pump
from tests.common.slowly import SlowLoop, slowly
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutation import mutated

BROKEN: Final[dict[str, Callable[[], Awaitable[None] | None]]] = {
    # Kafka has stored a batch
    "an error counts as stored": delivery.TestTooLarge().test_a_limit_that_was_lowered_is_looked_up,
    "a request without an answer counts as stored": lambda: delivery.TestRetried().test_byte_for_byte_and_unmarked(OSError()),
    "the identity of a batch in doubt is used again": delivery.TestNumbers().test_no_other_batch_has_those_of_one_in_doubt,
    # A frame's parts are durable
    "a failed batch counts as stored": pump.TestGivenUp().test_refused_for_good_is_the_whole_round,
    "frames are reported before their rejects are stored": pump.TestRejects().test_nothing_is_told_before_both_topics_have_it,
    "a part of a frame counts as all": pump.TestReports().test_the_prefix_of_a_frame_that_needs_several_batches,
    # The right conversation hears it
    "another conversation hears a report": pump.TestReports().test_each_conversation_hears_of_its_own_frames,
    # An acknowledgement may leave
    "a part of the ledger is acknowledged": ledger.test_only_the_oldest_leaves_and_only_when_it_is_whole,
}  # fmt: skip
"""By mutant: the test that fails with it."""

MUTANT: Final = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", BROKEN)
def test_a_decision_that_is_broken_fails_its_test(name: str) -> None:
    async def run(loop: SlowLoop) -> None:
        loop.set_exception_handler(lambda *_: None)  # a mutant may leave an answer unheard
        running = BROKEN[name]()
        if running is not None:
            await running

    slowly(run)
    with mutated(MUTANT[name]), pytest.raises((AssertionError, TimeoutError)):
        slowly(run)
