"""The sessions of a replica: which record a question becomes, and who hears what became of it."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from typing import Any

import pytest
from headrace_segment.questions import AppendBlock, ChangeSegment, OpenSession, OutcomeUnknown, SessionLost
from headrace_segment.serving import ServedSessions
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Appended, Opened, Refusal, Refused
from headrace_segment.store.records import Change, Create, Delete, Numbering, Open, Record, Renew, Seal, Truncate

from tests.driving import traced
from tests.segment.instant import Hears
from tests.segment.recorded import W1


class Bench:
    """One replica; `reads` lands records and reads them back."""

    def __init__(self) -> None:
        ids = itertools.count(1)
        self.fold = Fold()
        self.serving = ServedSessions(lambda: next(ids).to_bytes(16, "big"))

    def reads(self, *landed: Record | None) -> None:
        for record in landed:
            assert record is not None
            self.serving.read_back(self.fold.apply(self.fold.next_offset, b"a", record.encode(), 0))

    def opened(self, caller: Hears) -> bytes:
        self.reads(self.open(caller))
        ((_, answer),) = caller.takes()
        assert isinstance(answer, Opened)
        return answer.session

    def open(self, caller: Hears, now: float = 0) -> Open:
        return self.serving.open(OpenSession(0, "a", W1, Numbering.BYTES), caller, now)

    def change(self, ticket: int, change: Change, caller: Hears, now: float = 0) -> Change:
        return self.serving.change(ChangeSegment(ticket, "a", change), caller, now)

    def append(self, caller: Hears, session: bytes, before: int, data: bytes, ticket: int = 1, now: float = 0) -> Any:
        return self.serving.append(AppendBlock(ticket, "a", W1, session, before, before + len(data), data), caller, now)


@pytest.fixture
def bench() -> Bench:
    return Bench()


ME, OTHER = "me", "other"


def outcomes(caller: Hears) -> list[Any]:
    return [(ticket, answer.why, answer.length) for ticket, answer in caller.takes()]


def test_what_others_produce_answers_nobody_here(bench: Bench) -> None:
    me = Hears(ME)
    session = bench.opened(me)
    late = bench.append(me, session, 0, b"one")
    bench.reads(Open(b"other writer....", b"s" * 16, Numbering.BYTES), Seal(b"r" * 16))
    assert me.takes() == []
    bench.reads(late)
    assert me.takes() == [(1, Refused("a", W1, session, 3, Refusal.SEALED, 0))]


def test_a_block_that_comes_back_twice_answers_no_later_one(bench: Bench) -> None:
    me = Hears(ME)
    session = bench.opened(me)
    one = bench.append(me, session, 0, b"one")
    bench.reads(one)
    assert me.takes() == [(1, Appended("a", W1, session, 3, 3))]
    two = bench.append(me, session, 3, b"two", 2)
    bench.reads(one)  # Kafka has stored it again
    assert me.takes() == []
    bench.reads(two)
    assert me.takes() == [(2, Appended("a", W1, session, 6, 6))]


def test_a_foreign_open_takes_a_session_over(bench: Bench) -> None:
    me = Hears(ME)
    session = bench.opened(me)
    late = bench.append(me, session, 0, b"one")
    bench.reads(Open(W1, b"foreign.........", Numbering.BYTES))
    assert me.takes() == [SessionLost(W1, session)]
    assert bench.append(me, session, 3, b"two", 2) is None
    assert me.takes() == [(2, Refused("a", W1, session, 6, Refusal.SESSION))]
    bench.reads(late)
    assert me.takes() == [(1, Refused("a", W1, session, 3, Refusal.SESSION, 0))]
    assert len(bench.serving) == 0


def test_so_does_another_connection_here_but_not_the_same_one(bench: Bench) -> None:
    me, other = Hears(ME), Hears(OTHER)
    first = bench.opened(me)
    second = bench.opened(other)
    assert me.takes() == [SessionLost(W1, first)]
    third = bench.opened(other)
    assert other.takes() == []
    assert len({first, second, third}) == 3
    assert len(bench.serving) == 1


def test_an_open_that_is_under_way_outlives_a_foreign_one_that_lands_before_it(bench: Bench) -> None:
    me = Hears(ME)
    mine = bench.open(me)
    bench.reads(Open(W1, b"foreign.........", Numbering.BYTES, create=True), mine)
    assert me.takes() == [(0, Opened("a", W1, mine.session, 0))]


def test_a_repeat_in_its_own_session_is_stored(bench: Bench) -> None:
    me = Hears(ME)
    session = bench.opened(me)
    block = bench.append(me, session, 0, b"one")
    bench.reads(block)
    bench.append(me, session, 0, b"one", 2)
    bench.reads(block)
    assert me.takes() == [(1, Appended("a", W1, session, 3, 3)), (2, Appended("a", W1, session, 3, 3))]


def test_who_has_gone_is_answered_all_the_same(bench: Bench) -> None:
    me = Hears(ME)
    session = bench.opened(me)
    late = bench.append(me, session, 0, b"one")
    bench.serving.ended(me)
    assert len(bench.serving) == 1
    bench.reads(late)
    assert me.takes() == [(1, Appended("a", W1, session, 3, 3))]
    assert len(bench.serving) == 0
    bench.opened(me)
    bench.serving.ended(me)
    assert len(bench.serving) == 0


def test_a_lost_producer_ends_every_session_and_change(bench: Bench) -> None:
    me, other = Hears(ME), Hears(OTHER)
    session = bench.opened(me)
    late = bench.append(me, session, 0, b"one")
    bench.change(2, Seal(b""), other)
    bench.serving.producer_lost()
    assert me.takes() == ["producer", (1, OutcomeUnknown())]
    assert other.takes() == ["producer", (2, OutcomeUnknown())]
    assert len(bench.serving) == 0
    bench.reads(late)
    assert me.takes() == []


def test_who_waits_too_long_is_ended_and_its_record_may_still_land(bench: Bench) -> None:
    me, other, changes = Hears(ME), Hears(OTHER), Hears("changes")
    late = [
        bench.append(me, bench.opened(me), 0, b"one", now=5),
        bench.change(1, Seal(b""), changes, now=5),
    ]
    bench.open(other, now=9)
    bench.serving.overdue(5)
    assert me.takes() == changes.takes() == []
    bench.serving.overdue(6)
    assert me.takes() == changes.takes() == ["ack_deadline", (1, OutcomeUnknown())]
    assert other.takes() == []
    bench.reads(*late)
    assert me.takes() == changes.takes() == []
    assert bench.fold.segments["a"].length == 3


def test_who_changes_a_segment_hears_of_the_own_change(bench: Bench) -> None:
    me, other = Hears(ME), Hears(OTHER)
    mine = bench.change(7, Create(b""), me)
    theirs = bench.change(8, Create(b""), other)
    assert me.takes() == []
    bench.reads(Create(b"elsewhere......."), Delete(b"elsewhere......."), mine, theirs)
    assert outcomes(me) == [(7, None, 0)]
    assert outcomes(other) == [(8, Refusal.EXISTS, 0)]
    session = bench.opened(me)
    bench.reads(bench.append(me, session, 0, b"one"), bench.change(2, Truncate(b"", 4), other))
    assert outcomes(other) == [(2, Refusal.NONSENSE, 3)]
    bench.reads(bench.change(3, Truncate(b"", 3), other))
    bench.reads(bench.change(4, Seal(b""), other))
    bench.reads(bench.change(5, Delete(b""), other))
    bench.reads(bench.change(6, Delete(b""), other))
    assert outcomes(other) == [(3, None, 3), (4, None, 3), (5, None, 3), (6, Refusal.NO_SEGMENT, 0)]


def test_a_quiet_writer_is_renewed_while_its_session_is_open(bench: Bench) -> None:
    me = Hears(ME)
    session = bench.opened(me)
    touched = 5
    assert bench.serving.renewals(lambda segment, writer: touched, 5) == []
    assert bench.serving.renewals(lambda segment, writer: touched, 6) == [("a", Renew(W1, session))]
    assert bench.serving.renewals(lambda segment, writer: None, 6) == []
    bench.serving.ended(me)
    assert bench.serving.renewals(lambda segment, writer: touched, 6) == []


def test_a_session_whose_blocks_are_answered_keeps_little(bench: Bench) -> None:
    """10,000 connections have one each: beside the fold's writer, 10 MB."""
    callers = [Hears(str(number)) for number in range(20)]
    gc.collect()
    with traced():
        for number, caller in enumerate(callers):
            asked = OpenSession(0, "a", number.to_bytes(16, "big"), Numbering.BYTES)
            opened = bench.serving.open(asked, caller, 0)
            bench.reads(opened, bench.append(caller, opened.session, 0, b"data"))
            caller.heard = []
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    assert not bench.serving.waiting
    assert held / len(callers) <= 1_000
