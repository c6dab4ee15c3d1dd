"""What an owner appends, and the fold of it, against a naive model of the log: every record, every read, every checkpoint."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_segment import questions as ask
from headrace_segment.appending import Asks
from headrace_segment.replica.reading import Gathering
from headrace_segment.store import fold as folds
from headrace_segment.store.fold import Fold
from headrace_segment.store.records import (
    LAST_EPOCH,
    Block,
    Claim,
    Create,
    LogError,
    Numbering,
    Record,
    decode,
    segment_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from tests.driving import NOW_MS
from tests.segment.instant import Hears, InstantStore
from tests.segment.naive import Naive
from tests.tiers import examples

NAMES = ["a", "é\0"]
W, V = b"w" * 16, b"v" * 16

Step = tuple[int, int, int, int, int]
steps = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 1), st.integers(0, 1), st.integers(0, 6), st.integers(0, 40)),
    max_size=60,
)


class Bench(InstantStore):
    """An owner that is asked at random, and stores what waits now and then."""

    def __init__(self) -> None:
        self.model = Naive()
        super().__init__()
        self.callers = Hears("one"), Hears("other")
        self.levels: dict[tuple[str, bytes, Hears], int] = {}
        """As a connection knows them."""

    def asks(self, step: Step) -> None:
        """A question that often can be done. A connection that holds a writer goes on from its level, as its session does."""
        what, name_at, writer_at, odd, size = step
        name, writer, caller = NAMES[name_at], (W, V)[writer_at], self.callers[odd == 5]
        question: Asks
        if what < 4:
            question = ask.CreateSegment(1, name)
        elif what < 8:
            question = ask.OpenSession(1, name, writer, Numbering(writer_at))
        else:
            before, size = self.levels.get((name, writer, caller), 0), size + 1
            after = before + size * (1 + writer_at)
            question = ask.AppendBlock(1, name, Block(writer, before, after, bytes([after % 256]) * size))
            self.levels[name, writer, caller] = after  # the next block does not wait for this one
        self.appending.ask(question, caller)
        if what == 20 or isinstance(question, ask.OpenSession):
            self.settle()
        if isinstance(question, ask.OpenSession) and isinstance(caller.answer, ask.Opened):
            there = self.model.segments[name].levels
            assert caller.answer.level == there.get(writer, question.numbering.first)
            self.levels[name, writer, caller] = caller.answer.level

    def checkpoint(self, parts: int | None = None) -> int:
        """Returns its offset."""
        begin = self.fold.next_offset
        for part in [*self.fold.checkpoint()][:parts]:
            self.append("", part)
        return begin

    @override
    def _add(self, key: bytes, record: Record) -> bool:
        added = super()._add(key, record)
        assert not added or self.model.apply(segment_of(key), record) is None
        return added


def gathered(log: list[tuple[bytes, Record]], fold: Fold, name: str, offset: int, length: int) -> bytes:
    """Reads from where the index says."""
    if offset == fold.segments[name].length:
        return b""
    gathering = Gathering(name, fold.segments[name], offset, length)
    assert gathering.log_offset >= fold.needed_from()
    for at in itertools.count(gathering.log_offset):
        if gathering.take(SimpleNamespace(offset=at, key=log[at][0], value=log[at][1].encode())):
            break
    return gathering.data


def begun(fold: Fold) -> Fold:
    """One that begins with the checkpoint of another."""
    other = Fold(fold.next_offset)
    for part in fold.checkpoint():
        other.apply(other.next_offset, "", part, 0)
    return other


@pytest.fixture(autouse=True)
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that leaves out most blocks, and checkpoints in many parts, even in short histories."""
    monkeypatch.setattr(folds, "PART_BYTES", 20)
    monkeypatch.setattr(folds, "SEGMENT_STEP", 90)
    monkeypatch.setattr(folds, "LOG_STEP", 9)


@settings(max_examples=examples(2_000))
@given(steps, st.integers(0, 60), st.integers(0, 100), st.integers(1, 200))
def test_an_owner_stores_and_folds_as_the_naive_model(history: list[Step], cut: int, offset: int, length: int) -> None:
    bench = Bench()
    begin = 0
    for number, step in enumerate(history):
        if number == cut:
            begin = bench.checkpoint()
        if number == 2 * cut:  # one that its owner did not finish
            bench.checkpoint(1)
        bench.asks(step)
    bench.settle()
    model, fold, other = bench.model, bench.fold, Fold(begin)
    for key, record in bench.log[begin:]:
        assert decode(record.encode(7)) == (record, 7)
        other.apply(other.next_offset, segment_of(key), record, NOW_MS)
    assert [*other.checkpoint()] == [*fold.checkpoint()]
    assert fold.segments.keys() == model.segments.keys()
    for name, there in model.segments.items():
        segment = fold.segments[name]
        assert (segment.start, segment.length) == (0, len(there.content))
        assert {writer: each.level for writer, each in segment.writers.items()} == there.levels
        at = min(offset, len(there.content))
        assert gathered(bench.log, fold, name, at, length) == there.content[at : at + length]
        assert gathered(bench.log, fold, name, 0, 10**6) == there.content


# Answers


def asked(store: InstantStore, question: Any, caller: Hears | None = None) -> Any:
    caller = caller or store.caller
    store.appending.ask(question, caller)
    store.settle()
    return caller.answer


def block(before: int, data: bytes) -> ask.AppendBlock:
    return ask.AppendBlock(1, "a", Block(W, before, before + len(data), data))


def test_a_writer_that_another_connection_sets_up_is_refused() -> None:
    store, old, new = InstantStore(), Hears("old"), Hears("new")
    assert asked(store, ask.OpenSession(1, "a", W, Numbering.BYTES), old) == ask.Opened(0)
    store.appending.ask(block(0, b"one"), old)  # before the other one: it is stored
    store.appending.ask(ask.OpenSession(2, "a", W, Numbering.BYTES), new)
    store.appending.ask(block(3, b"two"), old)
    store.settle()
    assert old.takes()[1:] == ["taken_over", (1, ask.Appended(3, 3)), (1, ask.Refused(ask.Refusal.SESSION))]
    assert new.answer == ask.Opened(3)
    assert store.content("a") == b"one"


def test_the_claim_confirms_what_has_no_own_record() -> None:
    """A former owner that does not know of the new one yet could tell a level that is too low."""
    store = InstantStore()
    assert asked(store, ask.OpenSession(1, "a", W, Numbering.EVENTS)) == ask.Refused(ask.Refusal.NO_SEGMENT)
    assert asked(store, ask.CreateSegment(1, "a")) == ask.Created()
    assert asked(store, ask.CreateSegment(1, "a")) == ask.Refused(ask.Refusal.EXISTS)
    assert asked(store, ask.OpenSession(1, "a", W, Numbering.EVENTS)).level == Numbering.EVENTS.first
    assert [type(record) for _, record in store.log] == [Claim, Claim, Create, Claim, Claim]


def test_who_waits_hears_the_truth_whatever_becomes_of_the_batch() -> None:
    store, caller, other = InstantStore(), Hears(), Hears()
    asked(store, ask.OpenSession(1, "a", W, Numbering.BYTES), caller)
    caller.takes()
    appending = store.appending

    def begin() -> None:
        appending.ask(block(0, b"x"), caller)
        assert appending.fill(lambda key, value: True)
        appending.ask(ask.CreateSegment(2, "b"), other)

    begin()
    assert other.heard == []
    assert appending.stored(1) == [("a", 0, Block(W, 0, 1, b"x"))]
    assert caller.takes() == [(1, ask.Appended(1, 1))]
    appending.lost("producer")
    assert other.takes() == ["producer", (2, ask.OutcomeUnknown())]
    caller.takes()
    assert not appending
    asked(store, ask.OpenSession(1, "a", W, Numbering.BYTES), caller)
    caller.takes()
    appending.ask(block(1, b"y"), caller)
    appending.ask(ask.CreateSegment(2, "c"), caller)
    appending.ended(caller)
    assert caller.takes() == [(1, ask.OutcomeUnknown()), (2, ask.OutcomeUnknown())]
    assert not appending.holds("a", W)
    store.settle()
    assert (store.fold.segments["a"].length, [*store.fold.segments]) == (1, ["a", "c"])


# What is too old


def test_what_a_checkpoint_lets_go() -> None:
    """Whole blocks, and writers without a connection."""
    fold, times = Fold(), iter(range(10, 80, 10))
    fold.apply(0, "a", Create(), next(times))
    for at in range(4):
        fold.apply(fold.next_offset, "a", Block(W, at * 100, at * 100 + 100, bytes(100)), next(times))
    fold.apply(fold.next_offset, "a", Block(V, 0, 1, b"v"), next(times))
    segment = fold.segments["a"]
    fold.forget(20, 20, lambda *_: False)
    assert (segment.start, len(segment.writers)) == (0, 2)
    fold.forget(45, 60, lambda name, writer: writer == W)
    assert (segment.start, len(segment.writers), fold.needed_from()) == (200, 2, segment.log_offsets[0])
    fold.forget(45, 60, lambda *_: False)
    assert [*segment.writers] == [V]
    fold.apply(fold.next_offset, "a", Block(W, 0, 1, b"w"), next(times))  # it begins anew
    fold.forget(100, 0, lambda *_: False)  # to which nothing comes: else it would keep the log's head for ever
    assert (segment.start, fold.needed_from()) == (402, fold.next_offset)
    assert begun(fold).segments == fold.segments


# Records, claims and checkpoints


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "an empty record"),
        (b"\1", "makes no sense"),
        (b"\1\3", "makes no sense"),
        (b"\2" + Create().encode()[1:], "version 2"),
        (b"\1\xff" + bytes(16), "a record of kind 255 "),
        (Create().encode() + b"x", "a record of kind 3 and 11 bytes"),
        (Block(W, 0, 0, b"").encode()[:-1], "makes no sense"),
    ],
)
def test_what_is_no_record_of_ours(value: bytes | None, why: str) -> None:
    with pytest.raises(LogError, match=why):
        decode(value)
    with pytest.raises(LogError, match="no segment's name"):
        segment_of(b"\xff")


def test_a_log_that_contradicts_itself_is_not_served() -> None:
    with pytest.raises(LogError, match="no checkpoint"):
        Fold(1).apply(1, "a", Create(), 0)
    fold = Fold()
    with pytest.raises(LogError, match="missing"):
        fold.apply(1, "a", Create(), 0)
    fold.apply(0, "a", Create(), 0)
    for record in (Create(), Block(W, 3, 4, b"x")):
        with pytest.raises(LogError, match="contradicts"):
            fold.apply(fold.next_offset, "a", record, 0)
    with pytest.raises(LogError, match="contradicts"):
        fold.apply(fold.next_offset, "b", Block(W, 0, 1, b"x"), 0)


def test_which_claim_counts() -> None:
    fold = Fold()
    claims = [
        (Claim(1, 0, W), True),
        (Claim(2, 9, V), False),  # of two first ones at once the later
        (Claim(1, 1, V), True),
        (Claim(1, LAST_EPOCH, V), True),
        (Claim(3, 0, W), True),
        (Claim(4, 0, V), False),
    ]
    for claim, counts in claims:
        fold.apply(fold.next_offset, "", claim, 0)
        assert (fold.claim == claim) is counts
