"""Runs inputs by their numbers, and compares what the product makes of a conversation with the truth about it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgpack
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.event import Reject

from tests.driving import NOW_MS, Seen
from tests.forward import driving as forward
from tests.fuzz.chance import Chance
from tests.fuzz.mutation import cuts
from tests.fuzz.subjects import PROTOCOLS, Subject, made
from tests.fuzz.truth import RANDOM, Like, Part, Told, login, source, tree

ONE_BY_ONE: Final = 300
"""Up to this many bytes are fed one by one as well, in every `SELDOM` input."""
SELDOM: Final = 16

# The truth


def _part(made: Seen | Reject) -> Part:
    if isinstance(made, Seen):
        return Part(made.value, made.id, made.subject, made.source, made.time, made.attributes)
    about = orjson.loads(made.attributes)
    return Part(made.raw, made.id.decode(), made.subject, made.source, "", about, made.reason.value)


def untruths(
    told: Told, parts: Sequence[Part], replies: list[Any], closes: str | None, ids: dict[Any, Any]
) -> Iterator[str]:
    """How it differs from the truth. `ids`: those that were heard before, and what they were heard for."""
    if (closes, replies) != (told.closes, told.replies):
        yield f"closed by {closes!r} after {replies!r}, not by {told.closes!r} after {told.replies!r}"
    for due, found in zip_longest(told.parts, parts):
        if due is None or found is None:
            yield f"{found} is not {due}"
            return
        own, known = str(found.id), found.id == due.id
        if isinstance(due.id, Like):
            what = due.id.what
            known = own.startswith("d.") and ids.setdefault(due.id, own) == own and ids.setdefault(own, what) == what
        elif due.id == RANDOM:
            known = own.startswith(RANDOM) and ids.setdefault(own, due) is due
        body = found.body if isinstance(due.body, bytes) or found.reason else tree(found.body)
        for is_, should in zip(found._replace(body=body, id=due.id if known else own), due, strict=True):
            if is_ != should:
                yield f"{is_!r} is not {should!r}"


def untrue(subject: Subject, told: Told, at: Sequence[int] = ()) -> str:
    """How what is made of a conversation, whole and in pieces, differs from the truth; "" if it does not."""
    ids: dict[Any, Any] = {}
    found: list[str] = []
    alone = range(1, len(told.sent))  # messages of a turn come by streams
    for places in (alone,) if subject.messages else ((), at) if at else ((),):
        outcome = subject.drive(told.sent, places, **told.limits)
        parts = sorted(map(_part, outcome.flat), key=lambda part: str(part.attributes.get("writer")))
        error = getattr(outcome, "error", None)  # Logjam ends no connection
        closes = None if error is None else error.limit or ""
        found += untruths(told, parts, subject.replies(outcome), closes, ids)
    return "\n".join(found)


def untrue_login(s: Chance) -> str:
    """How a login to Forward, right or wrong, differs from the truth."""
    given = login.settings(s)
    session = forward.session(**given)
    ping, pong, name = login.login(s, given, session.outgoing())
    sent, events = [ping[:9], ping[9:] + forward.message(forward.pack({}))], []
    with contextlib.suppress(ProtocolError):
        for data in sent:
            session.receive(data, NOW_MS)
    said = msgpack.unpackb(session.outgoing())
    for frame in session.frames():
        events += [part.source for part in forward.parts_of(frame) if isinstance(part, Seen)]
    due = [source("forward", name)] * bool(name)
    return "" if (said, events) == (pong, due) else f"{said} and {events}, not {pong} and {due}: {given} {ping!r}"


def problem(protocol: str, seed: str) -> str:
    """How what comes of a conversation of this seed differs from the truth; "" if it does not."""
    s = Chance(f"{seed} told")
    try:
        if protocol == "forward" and s.perhaps(0.25):
            return "\n".join(filter(None, (untrue_login(s) for _ in range(10))))
        subject = s.choice(PROTOCOLS[protocol])
        told = subject.tell(s)
        return untrue(subject, told, cuts(subject.length(told.sent), s))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# Any bytes


def failure_of(protocol: str, seed: str) -> str:
    """How the input of a seed fails: by an exception, or because its pieces are something else than the whole, or what was told
    is not the truth; "" if it does not.
    """
    subject, sent, chance = made(protocol, seed)
    length = subject.length(sent)
    at = cuts(length, chance)
    if length <= ONE_BY_ONE and chance.randrange(SELDOM) == 0:
        at = list(range(1, length))
    failure = ""
    try:
        whole, split = (subject.comparable(subject.drive(sent, places)) for places in ((), at))
        if whole != split:
            failure = "its pieces are something else than the whole"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    if failure:
        parts = "\n".join(f"    {message!r}" for message in sent)
        return f"{failure}\n  cut at {at}, of the messages\n{parts}"
    untruth = problem(protocol, seed)
    return f"is not the truth: {untruth}" if untruth else ""


def failures(protocol: str, seed: int, numbers: range) -> Iterator[tuple[int, str]]:
    """The numbers of the inputs that fail, and how."""
    for number in numbers:
        if failure := failure_of(protocol, f"{seed}-{number}"):
            yield number, failure
