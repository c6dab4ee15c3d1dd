"""When memory is given back to the system, and that it is."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from headrace_common.service.heap import (
    FEW,
    FIRST,
    GIVEN,
    GROWN,
    LAST,
    QUIET,
    Heap,
    glibc_trim,
    resident,
)

START = 100 << 20


class Process:
    """Its size, and what a trim leaves of it."""

    def __init__(self, frees: int = 0) -> None:
        self.size = START
        self.frees = frees
        self.heap = Heap(0.0, self._trim, lambda: self.size)

    def _trim(self) -> None:
        self.size -= self.frees


@pytest.mark.parametrize(
    ("now", "grown", "under_way", "tried"),
    [
        (FIRST, GROWN, QUIET, True),
        (FIRST - 0.1, GROWN, QUIET, False),
        (FIRST, GROWN - 1, QUIET, False),
        (FIRST, GROWN, QUIET + 1, False),
    ],
)
def test_memory_is_given_back_when_little_is_under_way_and_it_has_grown(
    now: float, grown: int, under_way: int, tried: bool
) -> None:
    process = Process()
    process.size += grown
    assert process.heap.look(now, under_way, 0) is tried


def test_many_connections_do_not_wait_for_the_collector_while_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    connections = 0
    monkeypatch.setattr("gc.collect", lambda: collected.append(connections))
    process, at = Process(frees=GIVEN), 0.0
    process.size += 10 * GROWN
    for connections in (FEW, FEW + 1, 5 * FEW, 3 * FEW, 5 * FEW // 2, 5 * FEW // 2, FEW):
        at += FIRST
        assert process.heap.look(at, 0, connections)
    assert collected == [FEW, 5 * FEW // 2, FEW]


def test_tries_that_give_little_back_become_rare() -> None:
    process, at = Process(frees=GIVEN - 1), FIRST
    process.size += 10 * GROWN
    for pause in (20, 40, 80, 160, 320, LAST, LAST):
        assert process.heap.look(at, 0, 0)
        assert not process.heap.look(at + pause - 1, 0, 0)
        at += pause
    process.frees = GIVEN
    assert process.heap.look(at, 0, 0)
    assert not process.heap.look(at + FIRST - 1, 0, 0)
    assert process.heap.look(at + FIRST, 0, 0)


def test_a_size_that_cannot_be_read_ends_nothing() -> None:
    """A crowd may have taken every descriptor: the size is read from a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert resident() is None
        heap = Heap(0.0, lambda: None)
        assert not heap.look(FIRST, 0, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resident()
    assert not heap.look(FIRST, 0, 0)  # the least that it has had, as far as is known


@pytest.mark.skipif(glibc_trim() is None, reason="the C library is not glibc")
def test_what_small_objects_keep_from_the_system_is_given_back() -> None:
    """100 MB in pieces of 1 KB that are freed, but for each hundredth."""
    script = (
        "from headrace_common.service.heap import FIRST, Heap, glibc_trim, resident\n"
        "heap = Heap(0.0, glibc_trim())\n"
        "pieces = [bytearray(1000) for _ in range(100_000)]\n"
        "kept = pieces[99::100]\n"
        "del pieces\n"
        "before = resident()\n"
        "tried = heap.look(FIRST, 0, 0)\n"
        "print(tried, before - resident() > 50_000_000)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True", "True"]
