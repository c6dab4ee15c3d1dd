"""The fold against a naive model of the rules: every record, every read, every snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.replica.snapshot_topic import SnapshotTopic
from headrace_segment.store import state
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Appended, Opened, Refusal, Refused, Tended
from headrace_segment.store.reading import Gathering
from headrace_segment.store.records import (
    Block,
    Create,
    Delete,
    Forget,
    LogError,
    Numbering,
    Open,
    Record,
    Renew,
    Seal,
    Truncate,
    decode,
)
from headrace_segment.store.snapshots import Snapshots, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.segment.naive import Naive
from tests.tiers import examples

NAMES = ["a", "é\0"]
WRITERS = [b"w" * 16, b"v" * 16]


def identity(number: int) -> bytes:
    return number.to_bytes(16, "big")


Step = tuple[int, int, int, int, int]
steps = st.lists(
    st.tuples(st.integers(0, 32), st.integers(0, 1), st.integers(0, 1), st.integers(0, 6), st.integers(0, 40)),
    max_size=60,
)


def record_of(model: Naive, step: Step, number: int) -> tuple[str, Record]:
    """A record that often counts, for what the model holds."""
    what, name_at, writer_at, odd, size = step
    name, writer = NAMES[name_at], WRITERS[writer_at]
    there = model.segments.get(name)
    session, level, _, touched = (there.writers.get(writer) if there else None) or [identity(0), 0, Numbering.BYTES, 0]
    length = len(there.content) if there else 0
    if what == 0:
        return name, Create(identity(number))
    if what == 1:
        return name, Delete(identity(number)) if odd < 2 else Create(identity(number))
    if what == 2:
        return name, Seal(identity(number)) if odd < 2 else Truncate(identity(number), length // 2)
    if what == 3:
        return name, Truncate(identity(number), [length, length + 1, -1, 0, length // 3, length // 2, length - 1][odd])
    if what == 4:
        if odd > 3:
            return name, Renew(writer, identity(7) if odd == 6 else session)
        return name, Forget(writer, session, level + (odd == 1), touched + (odd == 2))
    if what < 10:
        numbering = Numbering((odd == 6) ^ writer_at)  # mostly one writer counts bytes, the other one events
        return name, Open(writer, identity(number if odd else 7), numbering, create=odd > 1)
    data = bytes([number % 256]) * size
    before = max(level + [0, 0, 0, 0, 0, 5, -3][odd], -(1 << 63))
    after = before + size + (odd == 4) + (number if writer_at else 0)  # event numbers may skip
    if what < 13:
        session = identity(number)
    return name, Block(writer, session, before, after, data)


def gathered(log: list[tuple[bytes, bytes]], fold: Fold, name: str, offset: int, length: int) -> bytes:
    """Reads as a replica does, from where the index says."""
    gathering = Gathering.of(name, fold.segments[name], offset, length)
    while not gathering.done:
        at = gathering.next_log_offset
        assert at >= fold.needed_from()
        gathering.take(at, *log[at])
    return gathering.data


def as_snapshot(fold: Fold) -> list[tuple[bytes, bytes]]:
    return list(snapshot(fold, 3, part_bytes=40))


def restored(parts: list[tuple[bytes, bytes]], log_start: int = 0) -> Fold | None:
    snapshots = Snapshots(3)
    for key, value in reversed(parts):
        snapshots.add(key, value)
    return snapshots.newest(log_start)


@pytest.fixture(autouse=True)
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that leaves out most blocks, even in short histories."""
    monkeypatch.setattr(state, "SEGMENT_STEP", 90)
    monkeypatch.setattr(state, "LOG_STEP", 9)


@settings(max_examples=examples(10_000))
@given(steps, st.integers(0, 60), st.integers(0, 100), st.integers(1, 200))
def test_the_fold_is_the_naive_model(history: list[Step], cut: int, offset: int, length: int) -> None:
    model, fold, other = Naive(), Fold(), Fold()
    log: list[tuple[bytes, bytes]] = []
    for number, step in enumerate(history):
        name, record = record_of(model, step, number)
        log.append((name.encode(), record.encode()))
        assert decode(record.encode()) == record
        outcome = fold.apply(number, *log[-1], number)
        why = model.apply(name, record)
        assert getattr(outcome, "why", None) is why
        if isinstance(outcome, Opened):
            assert outcome.level == model.segments[name].writers[outcome.writer][1]
        judged = isinstance(outcome, Appended) or (isinstance(outcome, Refused) and outcome.after is not None)
        if judged and why is not Refusal.NO_SEGMENT:
            assert isinstance(outcome, Appended | Refused)
            assert outcome.length == len(model.segments[name].content)
        if number < cut:
            assert other.apply(number, *log[-1], number) == outcome
        elif number == cut:  # this replica begins anew, from a snapshot of its own
            begun = restored(as_snapshot(other))
            assert begun is not None
            other = begun
        if number >= cut:
            assert other.apply(number, *log[-1], number) == outcome
    assert as_snapshot(other) == as_snapshot(fold)
    assert fold.segments.keys() == model.segments.keys()
    for name, there in model.segments.items():
        segment = fold.segments[name]
        assert (segment.start, segment.length, segment.sealed) == (there.start, len(there.content), there.sealed)
        assert {writer: (each.session, each.level) for writer, each in segment.writers.items()} == {
            writer: tuple(each[:2]) for writer, each in there.writers.items()
        }
        at = min(max(offset, there.start), len(there.content))
        assert gathered(log, fold, name, at, length) == there.content[at : at + length]
        assert gathered(log, fold, name, there.start, 10**6) == there.content[there.start :]


def opened(fold: Fold, *values: Record, key: bytes = b"a") -> list[Any]:
    return [fold.apply(fold.next_offset, key, value.encode(), 5) for value in values]


W = WRITERS[0]
S, T = identity(1), identity(2)
OPEN = Open(W, S, Numbering.BYTES, create=True)


def block(before: int, data: bytes, session: bytes = S) -> Block:
    return Block(W, session, before, before + len(data), data)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"a", None, "without a value of ours"),
        (b"a", b"", "without a value of ours"),
        (b"a", b"\1", "without a value of ours"),
        (b"a", b"\2" + OPEN.encode()[1:], "version 2"),
        (b"a", b"\1\xff" + bytes(16), "a record of kind 255$"),
        (b"a", OPEN.encode() + b"x", "makes no sense"),
        (b"a", OPEN.encode()[:-2] + b"\7\0", "makes no sense"),
        (b"a", block(0, b"").encode()[:-1], "makes no sense"),
        (b"\xff", OPEN.encode(), "no segment's name"),
    ],
)
def test_what_nobody_can_judge_stops_the_partition(key: bytes, value: bytes | None, why: str) -> None:
    fold = Fold()
    with pytest.raises(LogError, match=why):
        fold.apply(0, key, value, 0)
    with pytest.raises(LogError, match="missing"):  # a hole
        fold.apply(1, b"a", OPEN.encode(), 0)
    assert fold.next_offset == 0


def test_idle_writers_are_forgotten_unless_they_have_come_back_or_have_a_connection() -> None:
    fold = Fold()
    opened(fold, OPEN, block(0, b"one"))
    assert not list(fold.idle_writers(5))
    ((name, forget),) = fold.idle_writers(6)
    assert (name, forget) == ("a", Forget(W, S, 3, 5))
    assert fold.apply(2, b"a", Renew(W, S).encode(), 6) == Tended("a", W)
    assert not list(fold.idle_writers(6))
    assert opened(fold, forget)[0].why is Refusal.SESSION  # it was judged idle before the renewal was there
    assert opened(fold, Renew(W, T))[0].why is Refusal.SESSION  # and a late renewal revives no old session
    ((_, forget),) = fold.idle_writers(7)
    opened(fold, Open(W, T, Numbering.BYTES))
    assert opened(fold, forget)[0].why is Refusal.SESSION
    assert opened(fold, Forget(W, T, 3, fold.segments["a"].writers[W].touched))[0].why is None
    assert fold.segments["a"].writers == {}


# Snapshots


def two_sets() -> tuple[Fold, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    fold = Fold()
    opened(fold, OPEN, *(block(at, b"x") for at in range(30)))
    old = as_snapshot(fold)
    opened(fold, *(block(at, b"x") for at in range(30, 60)))
    assert len(old) > 2
    return fold, old, as_snapshot(fold)


def test_the_newest_complete_set_wins() -> None:
    fold, old, new = two_sets()
    found = restored(new + old)
    assert found is not None
    assert as_snapshot(found) == as_snapshot(fold)
    for missing in range(len(new)):
        found = restored(old + new[:missing] + new[missing + 1 :])
        assert found is not None
        assert found.next_offset == 31


def test_a_damaged_set_counts_for_nothing() -> None:
    _, old, new = two_sets()
    (key, value), *others = new
    found = restored([*old, (key, value[:-1] + b"?"), *others])
    assert found is not None
    assert found.next_offset == 31
    assert restored([(b"3/x/0", b""), (b"", b""), (b"\xff", b""), (b"3/9/manifest", b"\x93\2\0\0")]) is None


def test_a_set_below_the_start_of_the_log_is_of_no_use() -> None:
    _, old, new = two_sets()
    assert restored(old, 31) is not None
    assert restored(old, 32) is None
    assert restored(old + new, 61) is not None


def test_a_set_of_another_partition_is_none_of_ours() -> None:
    _, _, new = two_sets()
    other = Snapshots(4)
    for record in new:
        other.add(*record)
    assert other.newest(0) is None


def test_of_old_sets_the_manifest_goes_first() -> None:
    """A set that lacks a part must not look complete. Two sets stay: the log begins behind the older one."""
    fold, old, new = two_sets()
    opened(fold, block(60, b"x"))
    topic = SnapshotTopic(KafkaSettings(), 3)
    for record in (*old, *new):
        topic._note(*record)
    assert topic.sets() == [61, 31]
    assert topic._outdated() == []
    for record in as_snapshot(fold):
        topic._note(*record)
    assert topic.sets() == [62, 61, 31]
    outdated = topic._outdated()
    assert sorted(outdated) == sorted(key for key, _ in old)
    assert outdated[0] == b"3/31/manifest"
    for key in outdated:
        topic._note(key, None)
    assert topic.sets() == [62, 61]
    assert topic._outdated() == []
