"""The four decisions behind an acknowledgement (docs/architecture.md): each is broken on purpose, and a history shows it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from headrace_common.session.ledger import Ledger

from tests.common.slowly import SlowLoop, slowly
from tests.common.test_publishing import Say, Send, Step, Wait, play
from tests.simulation.mutants import MUTANTS, mutated

LOST: Final = Say("timed out", 1000)

BROKEN: Final[dict[str, list[Step]]] = {
    # Kafka has stored a batch
    "an error counts as stored": [Say("NotLeaderForPartitionError"), Send("e")],
    "a request without an answer counts as stored": [Say("lost request"), Send("e")],
    "the identity of a batch in doubt is used again": [LOST, Send("e"), Wait(8), Say("", 0), Send("e")],
    # A frame's parts are durable
    "a failed batch counts as stored": [Say("TopicAuthorizationFailedError"), Send("e")],
    "frames are reported before their rejects are stored": [Send("er")],
    "a part of a frame counts as all": [Send("EEEEEE")],
    # The right conversation hears it
    "another conversation hears a report": [Send("EEEE"), Send("E", 1)],
}  # fmt: skip
"""By mutant: a history that goes wrong with it."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_decision_that_is_broken_is_seen(name: str) -> None:
    async def played(loop: SlowLoop) -> Any:
        loop.set_exception_handler(lambda *_: None)  # a mutant may leave an answer unheard
        return await play(loop, *BROKEN[name])

    slowly(played)
    with mutated(MUTANTS[name]), pytest.raises((AssertionError, KeyError, TimeoutError)):
        slowly(played)


def only_the_oldest_leaves_and_only_when_it_is_whole() -> None:
    ledger: Ledger[str] = Ledger()
    first, second = ledger.add("first"), ledger.add("second")
    ledger.stored(second, 3, True)
    assert ledger.pop_whole() is None
    ledger.stored(first, 1, False)
    oldest = ledger.oldest()
    assert oldest is not None
    assert (oldest.note, oldest.stored, oldest.whole) == ("first", 1, False)
    assert ledger.pop_whole() is None
    ledger.stored(first, 2, True)
    assert [entry.note for entry in iter(ledger.pop_whole, None)] == ["first", "second"]
    assert ledger.oldest() is None
    assert len(ledger) == 0


def test_an_acknowledgement_of_a_part_of_the_ledger_is_seen() -> None:
    only_the_oldest_leaves_and_only_when_it_is_whole()
    with mutated(MUTANTS["a part of the ledger is acknowledged"]), pytest.raises(AssertionError):
        only_the_oldest_leaves_and_only_when_it_is_whole()
