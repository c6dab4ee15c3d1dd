"""Compares what the product makes of a conversation with the truth about it, and of a limit with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from headrace_common.record.event import Reject

from tests.driving import Seen
from tests.fuzz.chance import Chance
from tests.fuzz.limits import Limit
from tests.fuzz.subjects import PROTOCOLS, Subject
from tests.fuzz.truth import RANDOM, Like, Part, Told, tree


def _part(made: Seen | Reject) -> Part:
    if isinstance(made, Seen):
        return Part(made.value, made.id, made.subject, made.source, made.time, made.attributes)
    about = orjson.loads(made.attributes)
    return Part(made.raw, made.id.decode(), made.subject, made.source, "", about, made.reason.value)


def _judge_part(due: Part, found: Part, ids: dict[Any, Any]) -> None:
    """`ids`: those that were heard before, and what they were heard for."""
    own, known = str(found.id), found.id == due.id
    if isinstance(due.id, Like):
        what = due.id.what
        known = own.startswith("d.") and ids.setdefault(due.id, own) == own and ids.setdefault(own, what) == what
    elif due.id == RANDOM:
        known = own.startswith(RANDOM) and ids.setdefault(own, due) is due
    assert known, f"the id {own} is not that of {due}"
    body = found.body if isinstance(due.body, bytes) or found.reason else tree(found.body)
    for is_, should in zip(found._replace(body=body, id=own), due._replace(id=own), strict=True):
        assert is_ == should, f"{is_!r} is not {should!r}"


def judge(subject: Subject, told: Told, at: Sequence[int] = ()) -> None:
    """Raises AssertionError where what is made of a conversation, whole or in pieces, differs from the truth."""
    ids: dict[Any, Any] = {}
    alone = range(1, len(told.sent))  # messages of a turn come by streams
    for places in (alone,) if subject.messages else ((), at):
        outcome = subject.drive(told.sent, places)
        parts = sorted(map(_part, outcome.flat), key=lambda part: str(part.attributes.get("writer")))
        assert getattr(outcome, "error", None) is None  # Logjam ends no connection
        replies = subject.replies(outcome)
        assert replies == told.replies, f"{replies} are not {told.replies}"
        assert len(parts) == len(told.parts), f"{parts} are not {told.parts}"
        for due, found in zip(told.parts, parts, strict=True):
            _judge_part(due, found, ids)


def judge_limit(protocol: str, limit: Limit) -> None:
    """Raises AssertionError unless what fits is made, and the verdict is told of what is one beyond."""
    subject = PROTOCOLS[protocol][0]
    for over in (0, 1):
        sent, limits = limit.given(over)
        for at in (), subject.cuts(sent, Chance(limit.name)):
            outcome = subject.drive(sent, at, **limits)
            error = getattr(outcome, "error", None)
            closed = None if error is None else error.limit or ""
            reasons = [part.reason.value if isinstance(part, Reject) else "" for part in outcome.flat]
            refused = limit.verdict.islower()
            assert closed == (limit.verdict if over and not refused else None)
            assert bool(reasons) == (closed is None)
            assert not any(reasons[:-1])
            assert reasons[-1:] in ([], [limit.verdict if over else ""])


def judge_seed(protocol: str, seed: str) -> None:
    """The truth about a conversation of this seed."""
    s = Chance(f"{seed} told")
    subject = s.choice(PROTOCOLS[protocol])
    told = subject.tell(s)
    judge(subject, told, subject.cuts(told.sent, s))
