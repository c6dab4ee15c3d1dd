"""Judges what is to be appended to the log by its owner, who alone appends to it. Pure.

A question is judged when it comes, by what is stored or on its way. `fill` lays the records into a batch, in their order;
`stored` changes the state and answers. So an answer never tells what Kafka has not stored.

To set up a writer, or to create a segment that is there already, stores the owner's claim again: if that is stored, no other
process has become the owner meanwhile, and the answer is true. So the level of a writer never goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headrace_common.session.interface import Caller

from headrace_segment.questions import (
    AppendBlock,
    Appended,
    Created,
    CreateSegment,
    Opened,
    OpenSession,
    OutcomeUnknown,
    Refusal,
    Refused,
)
from headrace_segment.store.fold import Fold
from headrace_segment.store.records import Block, Claim, Create, Numbering

Question = OpenSession | AppendBlock | CreateSegment


@dataclass(slots=True)  # not frozen: one for each block
class _Asked:
    """A question, or a claim of the owner's own. `caller`: None if it waits for no answer (any more)."""

    record: Claim | Block | Create | None
    """None: there is only an answer."""
    caller: Caller | None = None
    question: Question | None = None
    refusal: Refusal | None = None

    @property
    def segment(self) -> str:
        """The segment that the record is about."""
        return "" if self.question is None or isinstance(self.record, Claim) else self.question.segment

    def answer(self, answer: object) -> None:
        caller, self.caller = self.caller, None
        if caller is not None and self.question is not None:
            caller.answered(self.question.ticket, answer)


@dataclass(slots=True)
class _Session:
    """The connection that a writer has set up last. Blocks that come on others are refused. `level`: behind all that it asked."""

    caller: Caller
    level: int | None = None


class Appending:
    """Judges by `fold`, which changes here only. `segments`, `writers`: the most of the log, and of one segment."""

    def __init__(self, fold: Fold, segments: int, writers: int) -> None:
        self.fold = fold
        self._most_segments = segments
        self._most_writers = writers
        self._waiting: deque[_Asked] = deque()
        self._under_way: list[_Asked] = []
        self._sessions: dict[tuple[str, bytes], _Session] = {}
        self._by_caller: dict[Caller, set[tuple[str, bytes]]] = {}
        self._creating: set[str] = set()

    def __bool__(self) -> bool:
        """Whether a record waits or is under way."""
        return bool(self._waiting or self._under_way)

    def holds(self, segment: str, writer: bytes) -> bool:
        """Returns whether a connection has set up the writer."""
        return (segment, writer) in self._sessions

    def put(self, claim: Claim) -> None:
        """Queues a claim of the owner's own."""
        self._waiting.append(_Asked(claim))

    def ask(self, question: Question, caller: Caller) -> None:
        """Judges a question, and queues its record or its answer."""
        asked = _Asked(None, caller, question)
        self._waiting.append(asked)
        if isinstance(question, AppendBlock):
            self._judge(asked, question.block, self._sessions.get((question.segment, question.block.writer)))
            return
        asked.record = self.fold.claim
        if question.segment not in self.fold.segments and question.segment not in self._creating:
            if isinstance(question, CreateSegment) or question.numbering is Numbering.BYTES:
                if len(self.fold.segments) + len(self._creating) >= self._most_segments:
                    asked.record, asked.refusal = None, Refusal.SEGMENTS
                else:
                    asked.record = Create()
                    self._creating.add(question.segment)
        elif isinstance(question, CreateSegment):
            asked.refusal = Refusal.EXISTS
        if isinstance(question, OpenSession):
            self._take_over(question, caller)

    @staticmethod
    def _judge(asked: _Asked, block: Block, session: _Session | None) -> None:
        if session is None or session.caller is not asked.caller or session.level is None:
            asked.refusal = Refusal.SESSION
        elif block.after > session.level:  # else it is stored, or on its way
            if block.before != session.level:
                asked.refusal = Refusal.GAP
            else:
                session.level = block.after
                asked.record = block

    def _take_over(self, question: OpenSession, caller: Caller) -> None:
        """Gives the writer to this connection. If another one has set it up, that one ends."""
        key = question.segment, question.writer
        former, self._sessions[key] = self._sessions.get(key), _Session(caller)
        self._by_caller.setdefault(caller, set()).add(key)
        if former is not None and former.caller is not caller:
            former.caller.end("taken_over")

    def fill(self, add: Callable[[bytes, Claim | Block | Create], bool]) -> int:
        """Takes what waits into a batch until `add` refuses a record. Returns the number of its records. Not while one is under
        way.
        """
        assert not self._under_way
        count = 0
        while self._waiting:
            asked = self._waiting[0]
            if asked.record is not None:
                if not add(asked.segment.encode(), asked.record):
                    break
                count += 1
            self._under_way.append(self._waiting.popleft())
        return count

    def stored(self, time_ms: int) -> list[tuple[str, int, Block]]:
        """Answers those of the batch, which is stored at the log's end. Raises `LogError`.

        Returns its blocks, each with the name of its segment and its offset there.
        """
        under_way, self._under_way = self._under_way, []
        answers: list[object] = []
        blocks: list[tuple[str, int, Block]] = []
        for asked in under_way:
            record, name = asked.record, asked.segment
            if isinstance(record, Block):
                blocks.append((name, self.fold.segments[name].length, record))
            elif isinstance(record, Create):
                self._creating.discard(name)
            if record is not None:
                self.fold.apply(self.fold.next_offset, name, record, time_ms)
            answers.append(self._answer(asked))
        for asked, answer in zip(under_way, answers, strict=True):
            asked.answer(answer)
        return blocks

    def _answer(self, asked: _Asked) -> Appended | Opened | Created | Refused:
        question = asked.question
        if asked.refusal is not None:
            return Refused(asked.refusal)
        if isinstance(question, AppendBlock):
            return Appended(question.block.after, self.fold.segments[question.segment].length)
        return self._opened(question, asked.caller) if isinstance(question, OpenSession) else Created()

    def _opened(self, question: OpenSession, caller: Caller | None) -> Opened | Refused:
        """Begins the writer's session at its level, unless it was taken over meanwhile."""
        session = self._sessions.get((question.segment, question.writer))
        if session is None or session.caller is not caller:
            return Refused(Refusal.SESSION)
        segment, refusal = self.fold.segments.get(question.segment), None
        writer = segment.writers.get(question.writer) if segment else None
        if segment is None:
            refusal = Refusal.NO_SEGMENT
        elif writer is None and len(segment.writers) >= self._most_writers:
            refusal = Refusal.WRITERS
        elif writer is not None and writer.numbering is not question.numbering:
            refusal = Refusal.NUMBERING
        if refusal is not None:
            del self._sessions[question.segment, question.writer]
            return Refused(refusal)
        session.level = writer.level if writer else question.numbering.first
        return Opened(session.level)

    def lost(self, why: str) -> None:
        """Ends all conversations that wait, or have set up a writer. What is under way may be stored, by what is known here."""
        asked = [*self._under_way, *self._waiting]
        callers = {**self._by_caller, **{each.caller: None for each in asked if each.caller is not None}}
        self._waiting.clear()
        self._under_way.clear()
        self._sessions.clear()
        self._by_caller.clear()
        self._creating.clear()
        for caller in callers:
            caller.end(why)
        for each in asked:
            each.answer(OutcomeUnknown())

    def ended(self, caller: Caller) -> None:
        """Forgets a conversation that has ended. What is under way may still be stored."""
        for asked in (*self._under_way, *self._waiting):
            if asked.caller is caller:
                asked.answer(OutcomeUnknown())
        # others may count with the segments that it creates
        self._waiting = deque(
            each for each in self._waiting if each.caller or each.question is None or isinstance(each.record, Create)
        )
        for key in self._by_caller.pop(caller, ()):
            if key in self._sessions and self._sessions[key].caller is caller:
                del self._sessions[key]
