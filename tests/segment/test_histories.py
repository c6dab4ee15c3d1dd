"""Random histories keep every promise, and each rule that is taken out breaks one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from headrace_segment.store.early import OwnRecord, fold_early
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Outcome, Refusal
from headrace_segment.store.records import Block
from headrace_segment.store.snapshots import snapshot
from headrace_segment.store.state import Segment, Writer
from typing_extensions import override

from tests.segment.histories import Early, live, violations
from tests.tiers import sized

HISTORIES = sized(200, 1000, 10_000)


@pytest.mark.parametrize("slice_of", range(4))
def test_histories_keep_every_promise(slice_of: int) -> None:
    acknowledged = refused = early = 0
    for seed in range(slice_of * HISTORIES // 4, (slice_of + 1) * HISTORIES // 4):
        world = live(seed)
        assert violations(world) == [], seed
        states = [list(snapshot(replica.fold, 0)) for replica in world.replicas]
        assert all(each == states[0] for each in states)
        acknowledged += world.acknowledged
        early += world.folded_early
        refused += sum(len(segment.refused) for segment in world.replicas[0].fold.segments.values())
    assert acknowledged > HISTORIES / 10
    assert early > HISTORIES / 2
    assert refused > HISTORIES / 8  # the histories are as bad as they are meant to be


class WithoutSessions(Fold):
    """A mutant: whoever holds the level may append, whatever session was opened since."""

    @staticmethod
    @override
    def _judge(segment: Segment, writer: Writer | None, record: Block) -> Refusal | None:
        if writer is not None:
            writer.session = record.session
        return Fold._judge(segment, writer, record)


class WithoutOrder(Fold):
    """A mutant: a block counts wherever it begins."""

    @staticmethod
    @override
    def _judge(segment: Segment, writer: Writer | None, record: Block) -> Refusal | None:
        why = Fold._judge(segment, writer, record)
        return None if why is Refusal.GAP else why


def over_others(fold: Fold, first: int, own: Sequence[OwnRecord], time_ms: int) -> list[Outcome] | None:
    """A mutant: own records are folded early although others' lie before them, and were not read."""
    fold.next_offset = max(fold.next_offset, first)
    return fold_early(fold, first, own, time_ms)


@pytest.mark.parametrize(
    ("fold", "resends", "early"),
    [
        (WithoutSessions, False, fold_early),
        (WithoutOrder, False, fold_early),
        (Fold, True, fold_early),
        (Fold, False, over_others),
    ],
    ids=["no sessions", "no order", "resending", "early over others"],
)
def test_a_rule_that_is_taken_out_breaks_a_promise(fold: Callable[[], Fold], resends: bool, early: Early) -> None:
    assert any(violations(live(seed, fold, resends=resends, early=early)) for seed in range(1000))
