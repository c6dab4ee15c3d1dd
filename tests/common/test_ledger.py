"""What was handed out leaves from the oldest on, whatever is stored first."""

from __future__ import annotations

from headrace_common.session.ledger import Ledger
from headrace_common.session.memory import ENTRY_BYTES, LARGEST, Memory


def test_only_the_oldest_leaves_and_only_when_it_is_whole() -> None:
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


# What sessions remember for many events: bounded in bytes


def test_a_memory_never_holds_more_than_its_limit() -> None:
    limit = 4 * LARGEST
    memory = Memory(limit)
    for number in range(5000):
        memory.put(number, number, number % 700)
        memory.get(number // 2)
        assert memory.used <= limit
    assert memory.get(4999) == 4999
    assert memory.get(0) is None


def test_a_memory_takes_an_entry_as_large_as_allowed_and_one_byte_larger() -> None:
    memory = Memory()
    memory.put("fits", 1, LARGEST - ENTRY_BYTES)
    memory.put("does not", 1, LARGEST - ENTRY_BYTES + 1)
    assert (memory.get("fits"), memory.get("does not")) == (1, None)
