"""Runs inputs by their numbers."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Final

from tests.fuzz import judging
from tests.fuzz.chance import Sent
from tests.fuzz.mutation import cuts
from tests.fuzz.subjects import Subject, made

ONE_BY_ONE: Final = 300
"""Up to this many bytes are fed one by one as well, in every `SELDOM` input."""
SELDOM: Final = 16


def problem_of(subject: Subject, sent: Sent, at: list[int]) -> str:
    """How an input fails: by an exception, or because its pieces are something else than the whole; "" if it does not."""
    try:
        whole, split = subject.outcome(sent, ()), subject.outcome(sent, at)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    return "" if whole == split else "its pieces are something else than the whole"


def failure_of(protocol: str, seed: str) -> str:
    """How the input of a seed fails; "" if it does not."""
    subject, sent, chance = made(protocol, seed)
    length = subject.length(sent)
    at = cuts(length, chance)
    if length <= ONE_BY_ONE and chance.randrange(SELDOM) == 0:
        at = list(range(1, length))
    if problem := problem_of(subject, sent, at):
        parts = "\n".join(f"    {message!r}" for message in sent)
        return f"{problem}\n  cut at {at}, of the messages\n{parts}"
    untruth = judging.problem(protocol, seed)
    return f"is not the truth: {untruth}" if untruth else ""


def failures(protocol: str, seed: int, numbers: range) -> Iterator[tuple[int, str]]:
    """The numbers of the inputs that fail, and how."""
    for number in numbers:
        if failure := failure_of(protocol, f"{seed}-{number}"):
            yield number, failure
