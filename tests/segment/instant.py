"""A store that answers at once, from the fold of a log of its own; and a session driven against it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Caller, Peer, Ticket
from headrace_segment import questions as ask
from headrace_segment.appending import Appending
from headrace_segment.session.conversation import SegmentSession
from headrace_segment.settings import SegmentSection
from headrace_segment.store import records
from headrace_segment.store.fold import Fold
from headrace_segment.wire import today
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import Table
from headrace_segment.wire.original import MESSAGES, DataAppended
from typing_extensions import override

from tests import driving
from tests.driving import NOW_MS, PEER, parts_of, with_constants

LIMITS = LimitSettings(frame_bytes=1 << 20, event_bytes=1 << 16)
SECTION = SegmentSection()


ACKNOWLEDGEMENTS = DataAppended, today.DataAppended


class Hears(Caller):
    """Writes down what it is told. `answer`: the last one."""

    answer: object = None

    def __init__(self, name: str = PEER.address) -> None:
        self.peer = Peer(name, 1, name)
        self.heard: list[Any] = []

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self.answer = answer
        self.heard.append((ticket, answer))

    @override
    def end(self, why: str) -> None:
        self.heard.append(why)

    def takes(self) -> list[Any]:
        """All since the last time."""
        heard, self.heard = self.heard, []
        return heard


class InstantStore:
    """One partition, and nobody else writes to it but who says so."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.log: list[tuple[bytes, records.Record]] = []
        self.appending = Appending(self.fold, 1000, 1000)
        self.caller = Hears()
        """The caller of questions that name none."""
        self.append("", records.Claim(1, 0, bytes(16)))

    def append(self, segment: str, record: records.Record) -> None:
        """Stores a record that nobody has asked for."""
        self._batch = 0
        self._add(segment.encode(), record)
        self.fold.apply(self.fold.next_offset, segment, record, NOW_MS)

    def settle(self) -> None:
        """Stores all that waits, in batches of three."""
        while self.appending:
            self._batch = 0
            self.appending.fill(self._add)
            self.appending.stored(NOW_MS)

    def _add(self, key: bytes, record: records.Record) -> bool:
        if self._batch == 3:
            return False
        self._batch += 1
        self.log.append((key, record))
        return True

    def content(self, segment: str, start: int = 0, length: int = 1 << 30) -> bytes:
        blocks = [each.data for key, each in self.log if key.decode() == segment and isinstance(each, records.Block)]
        return b"".join(blocks)[start : start + length]

    def answer(self, question: Any, caller: Hears | None = None) -> object:
        caller = caller or self.caller
        if isinstance(question, ask.RepliesLeft):
            return None
        if isinstance(question, ask.OpenSession | ask.AppendBlock | ask.CreateSegment):
            self.appending.ask(question, caller)
            self.settle()
            return caller.answer
        there = self.fold.segments.get(question.segment)
        if there is None:
            return ask.Refused(ask.Refusal.NO_SEGMENT)
        if isinstance(question, ask.DescribeSegment):
            return there
        data = self.content(question.segment, min(question.offset, there.length), question.length)
        return ask.BytesRead(data, at_tail=question.offset + len(data) >= there.length)


@dataclass
class Conversation(driving.Outcome):
    """All that came of some bytes."""

    replies: bytes = b""

    @property
    def messages(self) -> Table:
        """Of the dialect that was spoken."""
        return today.MESSAGES if self.replies.startswith(HELLO) else MESSAGES

    def said(self) -> list[Any]:
        """The replies, one by one."""
        return read_replies(self.replies, self.messages)

    def comparable(self) -> Any:
        """What does not depend on how the bytes were split.

        A KeepAlive and the refusal of an unknown type overtake what waits, and a writer's levels are merged as they come. A fault
        that shows only when a block has its turn is at no known offset.
        """
        said: list[Any] = []
        kept = [reply for reply in self.said() if type(reply).__name__ not in ("KeepAlive", "OperationUnsupported")]
        for reply in kept:
            level, before = reply, said[-1] if said else None
            if (
                isinstance(reply, ACKNOWLEDGEMENTS)
                and isinstance(before, type(reply))
                and before.writer == reply.writer
            ):
                said.pop()
                level = replace(reply, previous=before.previous) if hasattr(reply, "previous") else reply
            said.append(level)
        parts, _, _ = super().comparable()
        parts = [part for frame in parts for part in frame]
        error = None if self.error is None else (str(self.error), self.error.limit)
        return parts, error, self.partial, said, len(self.said()) - len(kept)


HELLO = Kind.HELLO.to_bytes(4, "big", signed=True)


def read_replies(data: bytes, messages: Table) -> list[Any]:
    found = []
    while data:
        kind, length = HEADER.unpack_from(data)
        assert len(data) >= 8 + length
        found.append(messages.decode(kind, data[8 : 8 + length]))
        data = data[8 + length :]
    return found


@dataclass
class Driven:
    """A session, and what its driver, its publisher and its store do for it, one thing at a time."""

    store: InstantStore = field(default_factory=InstantStore)
    limits: LimitSettings = LIMITS
    section: SegmentSection = SECTION
    outcome: Conversation = field(default_factory=Conversation)
    answer: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        self.session: ByteSession = SegmentSession(PEER, self.limits, self.section)
        self.caller = Hears()

    def serve(self) -> None:
        """Until nothing is left to do."""
        session, outcome = self.session, self.outcome
        again = True
        while again:
            again = False
            for frame in session.frames():
                parts = parts_of(frame)
                outcome.parts.append(parts)
                session.stored(frame.ticket, len(parts), True)
                again = True
            for question in list(session.questions()):
                answer = self.answer(question) if self.answer else self.store.answer(question, self.caller)
                try:
                    session.answered(question.ticket, answer)
                except ProtocolError as error:
                    outcome.error = outcome.error or error
                again = True
            outcome.replies += session.outgoing()

    def hear(self, *pieces: bytes) -> bytes:
        """What it says to these bytes."""
        before = len(self.outcome.replies)
        driving.feed_all(self.session, pieces, self.outcome, self.serve, end=False)
        return self.outcome.replies[before:]


class Slow:
    """A store and a publisher that do nothing until they are told to."""

    def __init__(self) -> None:
        self.driven = Driven()
        self.session = self.driven.session
        self.frames: deque[Any] = deque()
        self.questions: deque[Any] = deque()

    def hear(self, *data: bytes) -> bytes:
        said = b""
        for each in data:
            self.session.receive(each, NOW_MS)
            while self.session.status().busy:
                self.session.receive(b"", NOW_MS)
            said += self.look()
        return said

    def look(self) -> bytes:
        self.frames += self.session.frames()
        self.questions += self.session.questions()
        return self.session.outgoing()

    def store(self) -> bytes:
        frame = self.frames.popleft()
        self.session.stored(frame.ticket, 0, False)
        self.look()
        self.session.stored(frame.ticket, 1, True)
        return self.look()

    def answer(self) -> bytes:
        question = self.questions.popleft()
        self.session.answered(question.ticket, self.driven.store.answer(question, self.driven.caller))
        return self.look()


def drive(pieces: Iterable[bytes], *, end: bool = True, **limits: int) -> Conversation:
    """Feeds `pieces` to a session whose store answers at once."""
    section = with_constants(SegmentSection, limits)()
    driven = Driven(limits=LIMITS.model_copy(update=limits), section=section)
    driving.feed_all(driven.session, pieces, driven.outcome, driven.serve, end=end)
    return driven.outcome
