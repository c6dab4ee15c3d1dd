"""Compares what the product makes of a conversation with the truth about it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgpack
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.event import Reject

from tests.driving import NOW_MS, Seen
from tests.forward import driving as forward
from tests.fuzz.chance import Chance
from tests.fuzz.subjects import PROTOCOLS, Subject
from tests.fuzz.truth import RANDOM, Like, Part, Told, login, source, tree


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
        outcome = subject.drive(told.sent, places, **told.limits)
        parts = sorted(map(_part, outcome.flat), key=lambda part: str(part.attributes.get("writer")))
        error = getattr(outcome, "error", None)  # Logjam ends no connection
        heard = None if error is None else error.limit or "", subject.replies(outcome)
        assert heard == (told.closes, told.replies), f"closed and replied {heard}, not {told.closes, told.replies}"
        assert len(parts) == len(told.parts), f"{parts} are not {told.parts}"
        for due, found in zip(told.parts, parts, strict=True):
            _judge_part(due, found, ids)


def judge_login(s: Chance) -> None:
    """The same of a login to Forward, right or wrong."""
    given = login.settings(s)
    session = forward.session(**given)
    ping, pong, name = login.login(s, given, session.outgoing())
    with contextlib.suppress(ProtocolError):
        for data in (ping[:9], ping[9:] + forward.message(forward.pack({}))):
            session.receive(data, NOW_MS)
    said = msgpack.unpackb(session.outgoing())
    events = [part for frame in session.frames() for part in forward.parts_of(frame) if isinstance(part, Seen)]
    heard, due = (said, [event.source for event in events]), (pong, [source("forward", name)] * bool(name))
    assert heard == due, f"{heard}, not {due}: {given} {ping!r}"


def judge_seed(protocol: str, seed: str) -> None:
    """The same of a conversation of this seed."""
    s = Chance(f"{seed} told")
    if protocol == "forward" and s.perhaps(0.25):
        for _ in range(10):
            judge_login(s)
        return
    subject = s.choice(PROTOCOLS[protocol])
    told = subject.tell(s)
    judge(subject, told, subject.cuts(told.sent, s))
