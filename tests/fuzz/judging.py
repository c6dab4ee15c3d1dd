"""Compares what the product makes of a conversation with the truth about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgpack
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.event import Reject
from headrace_common.session.interface import Message

from tests.courier import driving as courier
from tests.driving import NOW_MS, Seen
from tests.forward import driving as forward
from tests.fuzz.chance import Chance, flat
from tests.fuzz.mutation import cuts, pieces
from tests.fuzz.truth import RANDOM, Like, Part, Told, login, source, tree
from tests.fuzz.truth import courier as courier_truth
from tests.fuzz.truth import forward as forward_truth
from tests.fuzz.truth import logjam as logjam_truth
from tests.fuzz.truth import lumberjack as lumberjack_truth
from tests.fuzz.truth import segment as segment_truth
from tests.logjam import driving as logjam
from tests.lumberjack import driving as lumberjack
from tests.segment import instant

Heard = tuple[Sequence[Part], list[Any], str | None]
"""Parts, replies, and what closed the connection, as in `Told`."""
Drive = Callable[[Told, Sequence[int]], Heard]
Tell = Callable[[Chance], Told]


def _part(made: Seen | Reject) -> Part:
    if isinstance(made, Seen):
        return Part(made.value, made.id, made.subject, made.source, made.time, made.attributes)
    about = orjson.loads(made.attributes)
    return Part(made.raw, made.id.decode(), made.subject, made.source, "", about, made.reason.value)


def _heard(outcome: Any, replies: list[Any]) -> Heard:
    return [*map(_part, outcome.flat)], replies, None if outcome.error is None else outcome.error.limit or ""


def _of_bytes(drive: Callable[..., Any], replies: Callable[[Any], list[Any]]) -> Drive:
    def heard(told: Told, at: Sequence[int]) -> Heard:
        outcome = drive(pieces(flat(told.sent), at), **told.limits)
        return _heard(outcome, replies(outcome))

    return heard


def _of_messages(told: Told, at: Sequence[int]) -> Heard:
    found = logjam.driven(**told.limits)
    for each in told.sent:
        found.session.receive(Message(each, logjam.ROUTE, logjam.ADDRESS), NOW_MS)
        for frame in found.turn():
            found.store(frame)
    return [*map(_part, found.flat)], [reply[1:] for reply in found.hear()], None


def _of_writers(told: Told, at: Sequence[int]) -> Heard:
    outcome = instant.drive(pieces(flat(told.sent), at), **told.limits)
    levels = {reply.writer: reply.level for reply in outcome.said() if type(reply).__name__ == "DataAppended"}
    parts, replies, closes = _heard(outcome, sorted(levels.items()))
    return sorted(parts, key=lambda part: str(part.attributes["writer"])), replies, closes


DRIVES: Final[Mapping[str, Drive]] = {
    "forward": _of_bytes(forward.drive, lambda outcome: outcome.replies),
    "forward_json": _of_bytes(forward.drive, lambda outcome: [orjson.loads(reply) for reply in outcome.replies]),
    "lumberjack": _of_bytes(lumberjack.drive, lambda outcome: outcome.acks),
    "courier": _of_bytes(courier.drive, lambda outcome: outcome.acknowledged),
    "logjam": _of_messages,
    "segment": _of_writers,
}


def untruths(told: Told, heard: Heard, ids: dict[Any, Any]) -> Iterator[str]:
    """How it differs from the truth. `ids`: those that were heard before, and what they were heard for."""
    parts, replies, closes = heard
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


def untrue(drive: str, told: Told, at: Sequence[int] = ()) -> str:
    """How what is made of a conversation, whole and in pieces, differs from the truth; "" if it does not."""
    ids: dict[Any, Any] = {}
    found: list[str] = []
    for places in ((), at) if at else ((),):
        found += untruths(told, DRIVES[drive](told, places), ids)
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


def _telling(drive: str, tell: Tell) -> Callable[[Chance], str]:
    def untruth(s: Chance) -> str:
        told = tell(s)
        return untrue(drive, told, cuts(len(flat(told.sent)), s))

    return untruth


def _logins(s: Chance) -> str:
    return "\n".join(filter(None, (untrue_login(s) for _ in range(10))))


TELLERS: Final[Mapping[str, Sequence[Callable[[Chance], str]]]] = {
    "forward": (
        *2 * (_telling("forward", forward_truth.told),),
        _telling("forward_json", forward_truth.in_json),
        _logins,
    ),
    "lumberjack": (_telling("lumberjack", lumberjack_truth.told),),
    "courier": (_telling("courier", courier_truth.told),),
    "logjam": (_telling("logjam", logjam_truth.told),),
    "segment": (_telling("segment", segment_truth.told),),
}


def problem(protocol: str, seed: str) -> str:
    """How what comes of a conversation of this seed differs from the truth; "" if it does not."""
    s = Chance(f"{seed} told")
    try:
        return s.choice(TELLERS[protocol])(s)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
