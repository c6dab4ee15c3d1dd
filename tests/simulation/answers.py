"""What the log of segments holds, record by record, and which answers a service may give because of it.

A client's answer says at which length of all logs it left (`End.version`). It must be true of the log as that was then: what was
done must be there, and what is told of a segment must have been so at some time since it was asked, or, of bytes that are there
already, since what the connection knew before.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson
from headrace_common.record.contract import Reason
from headrace_common.record.encoding import decode
from headrace_segment.store import records
from headrace_segment.wire import original, today

from tests.segment.naive import Naive
from tests.simulation.kafka import Stored

HEADER: Final = struct.Struct(">ii")
READ: Final = today.SegmentRead, original.SegmentRead
MISSING: Final = today.NoSuchSegment, original.NoSuchSegment


class State(NamedTuple):
    """A segment from a version on. `length`: None while there is none."""

    version: int
    length: int | None


def events(data: bytes) -> Iterator[bytes]:
    """The events of a block."""
    at = 0
    while at < len(data):
        size = HEADER.unpack_from(data, at)[1]
        yield data[at + 8 : at + 8 + size]
        at += 8 + size


class SegmentLog:
    """Takes each record that is stored."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._naive = Naive()
        self._states: dict[str, list[State]] = defaultdict(lambda: [State(0, None)])
        self._made: set[str] = set()
        """The segments of which a client has heard that it made them."""
        self._ids: dict[tuple[str, str, bytes], set[bytes]] = defaultdict(set)
        self._counted: Counter[tuple[str, str, bytes]] = Counter()
        self._levels: set[tuple[tuple[str, str, bytes], int]] = set()
        self._written: dict[tuple[str, bytes], list[bytes]] = defaultdict(list)
        """The events of a writer, in their order."""

    def stored(self, record: Stored) -> None:
        if record.topic == "headrace.segments":
            self._record((record.key or b"").decode(), records.decode(record.value)[0])
        else:
            self._world.oracle.stored(record)
            self._event(record)

    def _record(self, name: str, record: Any) -> None:
        if (why := self._naive.apply(name, record)) is not None:
            self._world.oracle.fails(f"{name} has {record!r:.100} in the log, and {why}")
        if (there := self._naive.segments.get(name)) is not None:
            self._states[name].append(State(len(self._world.broker.log), len(there.content)))
        if isinstance(record, records.Block):
            found, at = [*events(record.data)], record.before
            in_bytes = record.after == at + len(record.data)
            for left, value in enumerate(found, 1 - len(found)):
                what, at = (name, record.writer.hex(), value), at + HEADER.size + len(value)
                level = at if in_bytes else record.after + left
                if (what, level) not in self._levels:
                    self._world.oracle.fails(f"{value[:30]!r} of {name} has not its level {level}")
                self._written[name, record.writer].append(value)
                self._counted[what] += 1
                if len(self._ids[what]) < self._counted[what]:
                    self._world.oracle.fails(f"a block of {name} is stored before its event {value[:30]!r}")

    def _event(self, record: Stored) -> None:
        headers, value = record.headers, record.value or b""
        text = headers.get("ce_attributes") or headers["attributes"]
        if headers.get("reason") == Reason.REFUSED.encode():
            value, refused = decode(value)
            text = dict(refused)["ce_attributes"]
        about = orjson.loads(text)
        what = headers["ce_subject"].decode(), about["writer"], value
        self._levels.add((what, about["level"]))
        self._ids[what].add(headers.get("ce_id") or headers["id"])

    def judge(self) -> Iterator[str]:
        """What is not in the log once and in order."""
        for client in self._world.clients:
            if client.plan.kind == "honest":
                speaker, sent = client.speaker, [each for frame in client.frames for each in frame.documents]
                if self._written[speaker.segment, speaker.writer] != sent:
                    yield f"{speaker.segment} does not hold what {client.name} wrote, once and in order"

    def since(self, request: Any, answer: Any, asked: int, known: int, left: int) -> int | None:
        """From which version on an answer is true; None: it is not. `asked`, `left`: the length of all logs when the request and
        the answer set out; `known`: what the connection knew of it about the segment.
        """
        name = request.segment
        if getattr(answer, "segment", name) != name:
            return None
        if isinstance(answer, today.SegmentCreated | today.SegmentAlreadyExists):
            return self._made_or_there(name, answer, asked, left)
        states = [state for state in self._states[name] if state.version <= left]
        first = max(at for at, state in enumerate(states) if state.version <= known)
        for at, state in enumerate(states[first:], first):
            if self._is_so(answer, request, state):
                if not isinstance(answer, READ) or (answer.data and not _ends(answer)):
                    return state.version
                end = answer.offset + len(answer.data)
                if any(_ends(answer) and end >= (each.length or 0) for each in states[at:]):
                    return state.version
        return None

    def _made_or_there(self, name: str, answer: Any, asked: int, left: int) -> int | None:
        """What is answered to a request to make a segment: one hears that it has, and any other that the segment is there."""
        begins = next((state.version for state in self._states[name] if state.length is not None), left + 1)
        if isinstance(answer, today.SegmentCreated):
            if begins <= asked or name in self._made:
                return None
            self._made.add(name)
        return begins if begins <= left else None

    def _is_so(self, answer: Any, request: Any, state: State) -> bool:
        """Whether it is what a read, or a question about a segment, is answered in this state."""
        if state.length is None or isinstance(answer, MISSING):
            return state.length is None and isinstance(answer, MISSING)
        if isinstance(answer, today.SegmentInfo):
            told = answer.start, answer.length, answer.sealed, answer.exists, answer.deleted
            return told == (0, state.length, False, True, False)
        if not isinstance(answer, READ) or answer.offset != request.offset:
            return False
        data = self._naive.segments[request.segment].content[answer.offset : answer.offset + len(answer.data)]
        return data == answer.data and len(data) <= request.length


def _ends(answer: Any) -> bool:
    """Whether it says that no more is there."""
    return answer.at_tail if isinstance(answer, today.SegmentRead) else answer.flags == original.AT_TAIL
