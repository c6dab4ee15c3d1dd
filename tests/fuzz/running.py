"""Runs inputs by their numbers, and makes those that fail small."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.fuzz import judging
from tests.fuzz.conversations import Sent
from tests.fuzz.mutation import cuts
from tests.fuzz.subjects import Subject, made

ONE_BY_ONE: Final = 300
"""Up to this many bytes are fed one by one as well, in every `SELDOM` input."""
SELDOM: Final = 16

ATTEMPTS: Final = 3000
"""How often a failing input is tried while it is made small."""


@dataclass
class Failure:
    """An input that fails, and how."""

    sent: Sent
    at: list[int]
    problem: str

    def __str__(self) -> str:
        parts = "\n".join(f"    {message!r}" for message in self.sent)
        return f"{self.problem}\n  cut at {self.at}, of the messages\n{parts}"


def problem_of(subject: Subject, sent: Sent, at: list[int]) -> str | None:
    """How an input fails: by an exception, or because its pieces are something else than the whole."""
    try:
        whole, split = subject.outcome(sent, ()), subject.outcome(sent, at)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    return None if whole == split else "its pieces are something else than the whole"


def failure_of(protocol: str, seed: str) -> Failure | None:
    """How the input of a seed fails, if it does."""
    subject, sent, chance = made(protocol, seed)
    length = subject.length(sent)
    at = cuts(length, chance)
    if length <= ONE_BY_ONE and chance.randrange(SELDOM) == 0:
        at = list(range(1, length))
    problem = problem_of(subject, sent, at)
    if problem is not None:
        return Failure(sent, at, problem)
    untruth = judging.problem(protocol, seed)
    return Failure([], [], f"is not the truth: {untruth}") if untruth else None


def small(protocol: str, seed: str, failure: Failure) -> Failure:
    """A smaller input that fails in the same way (the same kind of exception, or as pieces)."""
    subject = made(protocol, seed)[0]
    chance = random.Random(seed)
    kind = failure.problem.partition(":")[0]
    left = ATTEMPTS

    def fails(sent: Sent) -> Failure | None:
        nonlocal left
        left -= 1
        size = subject.length(sent)
        for at in (failure.at, list(range(1, size)), cuts(size, chance)):
            fitting = [place for place in at if place <= size]
            problem = problem_of(subject, sent, fitting)
            if problem is not None and problem.partition(":")[0] == kind:
                return Failure(sent, fitting, problem)
        return None

    again = True
    while again and left > 0:
        again = False
        for smaller in smaller_ones(failure.sent):
            found = fails(smaller) if left > 0 else None
            if found is not None:
                failure, again = found, True
                break
    for at in ([place] for place in failure.at):
        problem = problem_of(subject, failure.sent, at)
        if problem is not None and problem.partition(":")[0] == kind:
            return Failure(failure.sent, at, problem)
    return failure


def smaller_ones(sent: Sent) -> Iterator[Sent]:
    """Without a message; without a half, a quarter, ... of a part, the large ones first."""
    for index in range(len(sent)):
        yield [*sent[:index], *sent[index + 1 :]]
    for index, message in enumerate(sent):
        for place, part in enumerate(message):
            size = len(part)
            while size := size // 2:
                for start in range(0, len(part), size):
                    rest = part[:start] + part[start + size :]
                    yield [*sent[:index], [*message[:place], rest, *message[place + 1 :]], *sent[index + 1 :]]


def failures(
    protocol: str, seed: int, numbers: range, each: Callable[[int], None] = lambda number: None
) -> Iterator[int]:
    """The numbers of the inputs that fail. `each` hears each number."""
    for number in numbers:
        if failure_of(protocol, f"{seed}-{number}") is not None:
            yield number
        each(number)
