"""What sessions remember for many events: bounded in bytes, the least recently used goes first."""

from __future__ import annotations

from headrace_common.session.memory import ENTRY_BYTES, LARGEST, Memory


def test_it_never_holds_more_than_its_limit() -> None:
    limit = 4 * LARGEST
    memory = Memory(limit)
    for number in range(5000):
        memory.put(number, number, number % 700)
        memory.get(number // 2)
        assert memory.used <= limit
    assert memory.get(4999) == 4999
    assert memory.get(0) is None


def test_what_is_used_stays() -> None:
    memory = Memory(4 * LARGEST)
    memory.put("used", "it", 0)
    for number in range(5000):
        memory.put(number, number, 0)
        assert memory.get("used") == "it"


def test_an_entry_as_large_as_allowed_and_one_byte_larger() -> None:
    memory = Memory()
    memory.put("fits", 1, LARGEST - ENTRY_BYTES)
    memory.put("does not", 1, LARGEST - ENTRY_BYTES + 1)
    assert (memory.get("fits"), memory.get("does not")) == (1, None)
