"""What the log of segments holds, record by record, and which answers a service may give because of it.

A client's answer says at which length of all logs it left (`Pipe.version`). It must be true of the log as that was then: what was
done must be there, and what is told of a segment must have been so at some time since it was asked, or, of bytes that are there
already, since what the connection knew before.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from headrace_common.record.contract import Reason
from headrace_common.record.encoding import decode
from headrace_segment.store import records
from headrace_segment.wire import original, today

from tests.segment.naive import Naive
from tests.simulation.kafka import Stored
from tests.simulation.protocols import WRITTEN

HEADER: Final = struct.Struct(">ii")
KEPT: Final = today.SegmentRead, original.SegmentRead
OTHER = -1
Wrote = Callable[[int, bytes, int, int], bytes]


@dataclass(frozen=True)
class State:
    """A segment from a version on. `levels`: of its writers."""

    version: int
    exists: bool = False
    length: int = 0
    levels: dict[bytes, int] = field(default_factory=dict)


@dataclass(eq=False)
class Fact:
    """A record, and the segment's length behind it."""

    version: int
    record: Any
    length: int
    told: bool = False
    """A client has heard of this change."""


@dataclass(frozen=True)
class Session:
    """A writer that was set up on a connection. `left`: the length of all logs when the answer left."""

    segment: str
    asked: int
    left: int
    wrote: Wrote
    place: int
    """Which of its connection's sessions it is."""


@dataclass(frozen=True)
class Asked:
    """A request. `version`, `known`: the length of all logs then, and what the connection knew of it about the segment."""

    request: Any
    segment: str
    version: int
    known: int


def events(data: bytes) -> Iterator[bytes]:
    """The events of a block."""
    at = 0
    while at < len(data):
        size = HEADER.unpack_from(data, at)[1]
        yield data[at + 8 : at + 8 + size]
        at += 8 + size


class SegmentLog:
    """Takes each record that is stored. `kept`: the segments of keepers; `names`: all."""

    def __init__(self, world: Any) -> None:
        self._world = world
        keeps = any(plan.kind == "keeper" for plan in world.scenario.clients)
        self.kept = ["kept-0", "kept-1"] if keeps else []
        self.names = [*self.kept, *WRITTEN]
        self._naive = Naive()
        self.states: dict[str, list[State]] = defaultdict(lambda: [State(0)])
        self.facts: dict[str, list[Fact]] = defaultdict(list)
        self.contents: dict[str, bytes] = {}
        self.sessions: dict[tuple[str, bytes], list[Session]] = defaultdict(list)
        """By segment and writer."""
        self._ids: dict[tuple[str, str, bytes], set[bytes]] = defaultdict(set)
        self._owner_of: dict[bytes, tuple[str, str, bytes]] = {}
        self._counted: Counter[tuple[str, str, bytes]] = Counter()
        self._levels: set[tuple[tuple[str, str, bytes], int]] = set()
        self._written: dict[tuple[str, bytes], list[bytes]] = defaultdict(list)
        """The events of a writer, in their order."""

    def stored(self, record: Stored) -> None:
        if record.topic == "headrace.segments":
            self._record((record.key or b"").decode(), records.decode(record.value)[0])
        else:
            self._event(record)

    def _record(self, name: str, record: Any) -> None:
        if (why := self._naive.apply(name, record)) is not None:
            self._world.oracle.fails(f"{name} has {record!r:.100} in the log, and {why}")
        there, version = self._naive.segments.get(name), len(self._world.broker.log)
        if there is None:
            state = State(version)
        else:
            state = State(version, True, len(there.content), dict(there.levels))
            self.contents[name] = there.content
        self.states[name].append(state)
        self.facts[name].append(Fact(version, record, state.length))
        if isinstance(record, records.Block):
            found, at = [*events(record.data)], record.before
            in_bytes = record.after == at + len(record.data)
            for left, value in enumerate(found, 1 - len(found)):
                what, at = (name, record.writer.hex(), value), at + HEADER.size + len(value)
                level = at if in_bytes else record.after + left
                if name in WRITTEN and (what, level) not in self._levels:
                    self._world.oracle.fails(f"{value[:30]!r} of {name} has not its level {level}")
                self._written[name, record.writer].append(value)
                self._counted[what] += 1
                if len(self._ids[what]) < self._counted[what]:
                    self._world.oracle.fails(f"a block of {name} is stored before its event {value[:30]!r}")

    def _event(self, record: Stored) -> None:
        """A keeper's is judged here, any other one as of any protocol."""
        headers, value = record.headers, record.value or b""
        text = headers.get("ce_attributes") or headers["attributes"]
        if headers.get("reason") == Reason.REFUSED.encode():
            value, refused = decode(value)
            text = dict(refused)["ce_attributes"]
        about = orjson.loads(text)
        name, writer, level = headers["ce_subject"].decode(), about["writer"], about["level"]
        address = headers["ce_source"].decode().rpartition("/")[2]
        client = self._world.network.addresses.get(address)
        if not hasattr(client, "says"):
            self._world.oracle.stored(record)
        elif not client.says(name, writer, level, value):
            self._world.oracle.fails(f"{address} has not sent {value[:30]!r} at {level} of {name}")
        self._levels.add(((name, writer, value), level))
        what, number = (name, writer, value), headers.get("ce_id") or headers["id"]
        self._ids[what].add(number)
        if self._owner_of.setdefault(number, what) != what:
            self._world.oracle.fails(f"{value[:30]!r} of {name} has the id of {self._owner_of[number]}")

    def between(self, name: str, since: int, until: int) -> list[State]:
        """What a segment was from one version to another."""
        states = self.states[name]
        first = bisect_right(states, since, key=lambda state: state.version) - 1
        return [state for state in states[first:] if state.version <= until]

    def judge(self) -> Iterator[str]:
        """What is not in the log once and in order, and keepers' blocks that the connection which had the writer has not sent."""
        for client in self._world.clients:
            if client.plan.kind == "honest":
                speaker, sent = client.speaker, [each for frame in client.frames for each in frame.documents]
                if self._written[speaker.segment, speaker.writer] != sent:
                    yield f"{speaker.segment} does not hold what {client.name} wrote, once and in order"
        for name in self.kept:
            for fact in self.facts[name]:
                block = fact.record
                if not isinstance(block, records.Block):
                    continue
                sessions = self.sessions[name, block.writer]
                newest = max((each.left for each in sessions if each.left < fact.version), default=0)
                may = [each for each in sessions if each.asked < fact.version and each.left >= newest]
                if not any(
                    each.wrote(each.place, block.writer, block.before, block.after) == block.data for each in may
                ):
                    yield f"{name}: what is stored from {block.before} to {block.after} came by another connection"


class Talk:
    """One connection. `wrote`: what it has sent in its n-th session, of a writer, between two levels."""

    def __init__(self, world: Any, name: str, wrote: Wrote = lambda *_: b"") -> None:
        self._world = world
        self._log: SegmentLog = world.segments
        self._name = name
        self._wrote = wrote
        self._sessions = 0
        self._asked: dict[int | bytes, Asked] = {}
        """By number; in the original dialect, which has none, the last."""
        self._segments: dict[bytes, str] = {}
        """By writer that it has set up."""
        self._opened: dict[bytes, tuple[str, int]] = {}
        """By writer, the segment, and from when on it is set up there."""
        self._levels: dict[bytes, int] = {}
        self._known: Counter[str] = Counter()

    def asks(self, request: Any) -> None:
        if isinstance(request, today.SetupAppend):
            self._segments[request.writer] = request.segment
        segment = request.segment if hasattr(request, "segment") else self._segments[request.writer]
        asked = Asked(request, segment, len(self._world.broker.log), self._known[segment])
        self._asked[getattr(request, "request", OTHER)] = asked

    def hears(self, answer: Any, version: int) -> None:
        """Fails the run unless the answer is true. `version`: when it left."""
        self._world.oracle.acknowledgements += 1
        asked = self._asked.get(getattr(answer, "request", OTHER))
        at = None
        if asked is not None and getattr(answer, "segment", asked.segment) == asked.segment:
            at = self._when(answer, asked, version)
        if asked is None or at is None:
            self._world.oracle.fails(f"{self._name} asked {asked!r:.300}, and {answer!r:.200} is not so")
        else:
            self._known[asked.segment] = max(at, self._known[asked.segment])

    def _when(self, answer: Any, asked: Asked, version: int) -> int | None:
        """From which version on the answer is true; None: it is not."""
        request = asked.request
        if isinstance(request, today.SetupAppend):
            return self._set_up(answer, asked, version)
        if isinstance(request, today.CreateSegment):
            return self._created(answer, asked, version)
        if not hasattr(request, "segment"):
            return self._appended(answer, request.writer, version)
        kept = isinstance(answer, KEPT)
        more = kept and not any(getattr(answer, each, False) for each in ("at_tail", "flags"))
        for state in self._log.between(
            asked.segment, asked.known, version
        ):  # an owner that was held up may not know better
            if self._is_so(answer, request, asked.segment, state):
                if more and answer.data:
                    return state.version
                ended = self._log.between(asked.segment, state.version, version)
                if not kept or any(self._ends_so(answer, each) for each in ended):
                    return state.version
        return None

    def _is_so(self, answer: Any, request: Any, name: str, state: State) -> bool:
        """Whether it is what a read, or a question about a segment, is answered in this state."""
        if isinstance(answer, today.NoSuchSegment | original.NoSuchSegment):
            return not state.exists
        if not state.exists:
            return False
        if isinstance(answer, today.SegmentInfo):
            told = answer.start, answer.length, answer.sealed, answer.exists, answer.deleted
            return told == (0, state.length, False, True, False)
        if not isinstance(answer, today.SegmentRead | original.SegmentRead) or answer.offset != request.offset:
            return False
        data = self._log.contents[name][answer.offset : answer.offset + len(answer.data)]
        return data == answer.data and len(data) <= request.length

    @staticmethod
    def _ends_so(answer: Any, state: State) -> bool:
        """Whether what is told beside bytes is so in this state."""
        at_tail = answer.at_tail if isinstance(answer, today.SegmentRead) else answer.flags == original.AT_TAIL
        return at_tail and answer.offset + len(answer.data) >= state.length

    def _set_up(self, answer: Any, asked: Asked, version: int) -> int | None:
        request = asked.request
        refused = isinstance(answer, today.NoSuchSegment)
        if not refused and getattr(answer, "writer", b"") != request.writer:
            return None
        for state in self._log.between(asked.segment, asked.version, version):
            if refused and not state.exists:
                self._opened[request.writer] = asked.segment, asked.version
                return state.version
            if (
                not refused
                and state.exists
                and state.levels.get(request.writer, records.Numbering.EVENTS.first) == answer.level
            ):
                self._opened[request.writer] = asked.segment, asked.version
                self._levels[request.writer] = answer.level
                session = Session(asked.segment, asked.version, version, self._wrote, self._sessions)
                self._log.sessions[asked.segment, request.writer].append(session)
                self._sessions += 1
                return state.version
        return None

    def _appended(self, answer: Any, writer: bytes, version: int) -> int | None:
        """The answer to a block."""
        name, since = self._opened.get(writer, ("", 0))
        if not isinstance(answer, today.DataAppended) or (answer.writer, answer.previous) != (
            writer,
            self._levels[writer],
        ):
            return None
        stored = [
            fact
            for fact in self._log.facts[name]
            if since < fact.version <= version
            and isinstance(fact.record, records.Block)
            and (fact.record.writer, fact.record.after, fact.length) == (writer, answer.level, answer.length)
        ]
        self._levels[writer] = answer.level
        return stored[0].version if stored else None

    def _created(self, answer: Any, asked: Asked, version: int) -> int | None:
        if isinstance(answer, today.SegmentCreated):
            for fact in reversed(self._log.facts[asked.segment]):
                if (
                    isinstance(fact.record, records.Create)
                    and asked.version < fact.version <= version
                    and not fact.told
                ):
                    fact.told = True
                    return fact.version
            return None
        states = self._log.between(asked.segment, asked.version, version)
        exists = isinstance(answer, today.SegmentAlreadyExists)
        return next((each.version for each in states if exists and each.exists), None)
