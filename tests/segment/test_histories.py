"""Random histories keep every promise, and each rule that is taken out breaks one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Refusal
from headrace_segment.store.records import Block
from headrace_segment.store.snapshots import snapshot
from headrace_segment.store.state import Segment, Writer
from typing_extensions import override

from tests.segment.histories import live, violations
from tests.tiers import sized

HISTORIES = sized(200, 1000, 10_000)


@pytest.mark.parametrize("slice_of", range(4))
def test_histories_keep_every_promise(slice_of: int) -> None:
    acknowledged = refused = 0
    for seed in range(slice_of * HISTORIES // 4, (slice_of + 1) * HISTORIES // 4):
        world = live(seed)
        assert violations(world) == [], seed
        states = [list(snapshot(replica.fold, 0)) for replica in world.replicas]
        assert all(each == states[0] for each in states)
        acknowledged += world.acknowledged
        refused += sum(len(segment.refused) for segment in world.replicas[0].fold.segments.values())
    assert acknowledged > HISTORIES / 10
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


@pytest.mark.parametrize(
    ("fold", "resends"),
    [(WithoutSessions, False), (WithoutOrder, False), (Fold, True)],
    ids=["no sessions", "no order", "resending"],
)
def test_a_rule_that_is_taken_out_breaks_a_promise(fold: Callable[[], Fold], resends: bool) -> None:
    assert any(violations(live(seed, fold, resends=resends)) for seed in range(1000))
