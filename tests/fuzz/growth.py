"""Inputs that grow: processor time is linear in what arrives (or inflates), and what is held is counted.

An input has one place that grows (`tests.fuzz.shape`). It is measured at a size, and at 2, 4 and 8 times that size. Time that is
linear doubles three times; a step, where a limit or another way begins, is one step. So the middle of the three factors judges.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Frame, Message, MessageSession

from tests.driving import NOW_MS
from tests.fuzz.conversations import Sent
from tests.fuzz.shape import grown
from tests.fuzz.subjects import PROTOCOLS, Subject, flat
from tests.logjam.driving import ADDRESS, ROUTE
from tests.segment.instant import InstantStore

READ: Final = 64 << 10
"""Bytes of one read."""

STEEP: Final = 2.7
"""A factor above this, for twice the size, is more than linear. Linear time has 2, the square 4, the power of 1.5 has 2.8."""

AGAIN: Final = 20
"""How often what is steep is measured again: the least of all times counts, since others use the machine, too."""

LEAST: Final = 0.004
"""CPU-seconds that the smallest of the four sizes takes at least: below, other things are measured."""

MOST_BYTES: Final = 256 << 10
MOST_THINGS: Final = 1 << 17
"""Of the smallest of the four: at 8 times that, an event is above LIMITS__EVENT_BYTES."""

HELD: Final = 4
SLACK: Final = 1 << 20
"""A session holds at most `HELD` times the bytes that it says it holds, and `SLACK`."""


@dataclass
class Cost:
    """What an input has cost: CPU-seconds, the longest step that nothing interrupts, bytes that were sent."""

    spent: float = 0.0
    longest: float = 0.0
    size: int = 0

    def __lt__(self, other: Cost) -> bool:
        return self.spent < other.spent


class Meter:
    """Drives a session as a connection does. Counts only the time that is spent in it, or in its frames."""

    def __init__(self, session: ByteSession | MessageSession) -> None:
        self.session = session
        self.cost = Cost()
        self.frames: deque[Frame] = deque()
        self.held = 0
        """Bytes of frames that are not built."""
        self._store = InstantStore()

    def timed(self, step: Any, *given: Any) -> Any:
        began = time.thread_time()
        try:
            return step(*given)
        finally:
            spent = time.thread_time() - began
            self.cost.spent += spent
            self.cost.longest = max(self.cost.longest, spent)

    def hear(self, message: Any) -> None:
        """One read, looked through."""
        self.timed(self.session.receive, message, NOW_MS)
        while self.session.status().busy:
            self.timed(self.session.receive, b"" if isinstance(message, bytes) else Message(()), NOW_MS)

    def take(self) -> None:
        """What it hands out: frames, questions, which are answered at once."""
        session = self.session
        due = session.deadline()
        if isinstance(session, MessageSession) and due is not None:
            self.timed(session.tick, due)
        found: list[Frame] = self.timed(list, session.frames())
        self.frames += found
        self.held += sum(frame.size for frame in found)
        while questions := self.timed(list, session.questions()):
            for question in questions:
                answer = self._store.answer(question)
                try:
                    self.timed(session.answered, question.ticket, answer)
                finally:
                    found = self.timed(list, session.frames())
                    self.frames += found

    def serve(self) -> None:
        """Builds and stores frames, and hears replies."""
        while self.frames:
            frame = self.frames.popleft()
            count = 0
            parts = frame.parts()
            while (part := self.timed(next, parts, self)) is not self:
                count += bool(part)
            self.timed(self.session.stored, frame.ticket, count, True)
            while self.timed(self.session.outgoing):
                pass
            self.take()
        while self.timed(self.session.outgoing):
            pass


def reads(subject: Subject, sent: Sent, piece: int) -> Iterator[Any]:
    """What arrives at once: pieces of the stream, or messages."""
    if isinstance(subject.session(), MessageSession):  # type: ignore[misc]
        for parts in sent:
            yield Message(parts, ROUTE, ADDRESS)
    else:
        data = flat(sent)
        for at in range(0, len(data), piece):
            yield data[at : at + piece]


def cost(subject: Subject, sent: Sent, piece: int = READ) -> Cost:
    """What an input costs."""
    assert subject.session is not None
    arriving = list(reads(subject, sent, piece))
    meter = Meter(subject.session())
    meter.cost.size = len(flat(sent))
    gc.collect()
    try:
        for read in arriving:
            meter.hear(read)
            meter.take()
            meter.serve()
    except ProtocolError:
        pass
    meter.serve()
    return meter.cost


def held(subject: Subject, sent: Sent, piece: int = READ) -> tuple[int, int]:
    """(bytes in memory, bytes that it says it holds), where the first is largest; its frames wait for the publisher."""
    assert subject.session is not None
    arriving = list(reads(subject, sent, piece))
    meter = Meter(subject.session())
    most = (0, 0)
    gc.collect()
    tracemalloc.start()
    try:
        for read in arriving:
            meter.hear(read)
            meter.take()
            said = meter.session.status().partial_bytes + meter.session.status().waiting_bytes + meter.held
            most = max(most, (tracemalloc.get_traced_memory()[0], said), key=lambda pair: pair[0] - HELD * pair[1])
    except ProtocolError:
        pass
    finally:
        tracemalloc.stop()
    return most


@dataclass
class Growth:
    """An input at four sizes. `problem`: what is wrong with it; empty if nothing is."""

    costs: list[Cost]
    memory: tuple[int, int]

    @property
    def problem(self) -> str:
        found = []
        if self.costs and self.factor > STEEP:
            found.append(f"twice the size takes {self.factor:.1f} times the time")
        if self.memory[0] > HELD * self.memory[1] + SLACK:
            found.append(f"{self.memory[0]} bytes held where it says {self.memory[1]}")
        return ", ".join(found)

    @property
    def factor(self) -> float:
        """The middle factor by which the time grows for twice the size; where more than twice the bytes come, for twice these."""
        pairs = zip(self.costs, self.costs[1:], strict=False)
        return statistics.median(
            after.spent / max(before.spent, LEAST / 2) / max(1, after.size / max(1, before.size) / 2)
            for before, after in pairs
        )


def grows(protocol: str, seed: str) -> Growth:
    """How the cost of the input of a seed grows. What is suspicious is measured again."""
    choice = [subject for subject in PROTOCOLS[protocol] if subject.session is not None]
    subject = choice[hash_of(seed) % len(choice)]
    piece = (READ, READ, 1000)[hash_of(seed) % 3]

    def at(size: int) -> Cost:
        return cost(subject, grown(subject.make, seed, size), piece)

    size = 64
    first = at(size)
    while first.spent < LEAST and first.size < MOST_BYTES and size < MOST_THINGS:
        size *= 2
        first = at(size)
    memory = held(subject, grown(subject.make, seed, 8 * size), piece)
    if first.spent < LEAST:
        return Growth([], memory)
    found = Growth([first, *(at(size * times) for times in (2, 4, 8))], memory)
    for _ in range(AGAIN):
        if found.costs and found.factor > STEEP:
            again = [min(at(size * times), before) for times, before in zip((1, 2, 4, 8), found.costs, strict=True)]
            found = Growth(again, memory)
    return found


def hash_of(seed: str) -> int:
    return int.from_bytes(seed.encode(), "big")


def run(protocol: str, seed: int, numbers: range) -> int:
    """Measures inputs, prints those with a problem and what was longest, and returns how many have one."""
    failed = measured = 0
    longest: list[tuple[float, str]] = []
    for number in numbers:
        try:
            found = grows(protocol, f"{seed}-{number}")
        except Exception as error:
            failed += 1
            print(f"input {number}: {type(error).__name__}: {error}", flush=True)
            continue
        if found.problem:
            failed += 1
            said = ", ".join(f"{each.size} B {each.spent * 1000:.0f} ms" for each in found.costs)
            print(f"input {number}: {found.problem}: {said}", flush=True)
        if found.costs:
            measured += 1
            worst = max(found.costs, key=lambda each: each.longest)
            longest.append((worst.longest, f"input {number}: {worst.longest * 1000:.0f} ms, {worst.size} bytes"))
    print(f"{measured} of {len(numbers)} inputs take long enough to be compared")
    for _, said in sorted(longest, reverse=True)[:3]:
        print(f"longest steps: {said}")
    return failed
