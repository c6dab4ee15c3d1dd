"""Judges what is to be appended to one partition by its owner, who alone appends to it. Pure.

Questions wait in their order. `fill` judges them by the state that is stored, and lays their records into a batch; `stored`
changes the state and answers. So an answer never tells what Kafka has not stored. A batch has blocks, or sessions of writers, or
one new segment.

A session, and a segment that is there already, store the owner's claim again: if that is stored, no other process has become the
owner meanwhile, and the answer is true. So the level of a writer never goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace_common.session.interface import Caller

from headrace_segment.questions import (
    AppendBlock,
    Appended,
    Created,
    CreateSegment,
    LimitExceeded,
    Opened,
    OpenSession,
    OutcomeUnknown,
    Refusal,
    Refused,
)
from headrace_segment.store.fold import Fold
from headrace_segment.store.records import Block, Claim, Create, Numbering, Record, Truncate

Question = OpenSession | AppendBlock | CreateSegment
Answer = Opened | Appended | Refused | Created | LimitExceeded
RECORDS: Final = Claim | Block | Create | Truncate


@dataclass(slots=True)  # not frozen: one for each block
class _Asked:
    """A question, or a record of the service's own. `caller`: None if it waits for no answer (any more)."""

    segment: str
    caller: Caller | None = None
    question: Question | None = None
    record: Record | None = None
    exists: bool = False
    """It asks to create a segment that is there already."""

    def answer(self, answer: object) -> None:
        caller, self.caller = self.caller, None
        if caller is not None and self.question is not None:
            caller.answered(self.question.ticket, answer)


@dataclass(frozen=True, slots=True)
class _Session:
    """The connection that a writer has set up last. Blocks that come on others are refused."""

    caller: Caller
    numbering: Numbering


class Appending:
    """Judges by `fold`, which changes here only. `exceeds`: the limit that a new segment, or a new writer of one, exceeds."""

    def __init__(self, fold: Fold, exceeds: Callable[[str, bytes | None], str | None]) -> None:
        self.fold = fold
        self._exceeds = exceeds
        self._waiting: deque[_Asked] = deque()
        self._under_way: list[_Asked] = []
        self._sessions: dict[tuple[str, bytes], _Session] = {}
        self._by_caller: dict[Caller, set[tuple[str, bytes]]] = {}

    def __len__(self) -> int:
        """Returns the number of writers that are set up."""
        return len(self._sessions)

    def __bool__(self) -> bool:
        """Whether a record waits or is under way."""
        return bool(self._waiting or self._under_way)

    def holds(self, segment: str, writer: bytes) -> bool:
        """Returns whether a connection has set up the writer."""
        return (segment, writer) in self._sessions

    def ask(self, question: Question, caller: Caller) -> None:
        """Queues a question."""
        self._waiting.append(_Asked(question.segment, caller, question))

    def put(self, segment: str, record: Record) -> None:
        """Queues a record of the service's own."""
        self._waiting.append(_Asked(segment, record=record))

    def fill(self, add: Callable[[bytes, Record], bool]) -> bool:
        """Takes questions into a batch until `add` refuses a record. Returns whether it has one. Not while one is under way."""
        assert not self._under_way
        levels: dict[tuple[str, bytes], int] = {}
        while self._waiting:
            asked = self._waiting[0]
            if self._under_way and type(asked.question) is not type(self._under_way[0].question):
                break
            found = self._judged(asked, levels)
            alone = not isinstance(found, Block | Claim)
            if self._under_way and alone:  # nor does an answer overtake those before it
                break
            if not isinstance(found, RECORDS):
                self._waiting.popleft()
                asked.answer(found)
            elif not add(b"" if isinstance(found, Claim) else asked.segment.encode(), found):
                break
            else:
                asked.record = found
                self._under_way.append(self._waiting.popleft())
                if alone:
                    break
        return bool(self._under_way)

    def stored(self, first: int, time_ms: int) -> list[tuple[str, int, Record]]:
        """Answers those of the batch, which is stored from this offset on. Raises `LogError`.

        Returns its records, each with the name of its segment and the length that this had before it.
        """
        under_way, self._under_way = self._under_way, []
        answers: list[tuple[_Asked, Answer]] = []
        taken: list[tuple[str, int, Record]] = []
        for at, asked in enumerate(under_way):
            assert asked.record is not None
            segment = self.fold.segments.get(asked.segment)
            taken.append((asked.segment, segment.length if segment else 0, asked.record))
            self.fold.apply(first + at, asked.segment, asked.record, time_ms)
            question = asked.question
            if isinstance(question, AppendBlock):
                answers.append((asked, self._appended(question)))
            elif isinstance(question, CreateSegment):
                answers.append((asked, Refused(Refusal.EXISTS) if asked.exists else Created()))
            elif question is not None and asked.caller is not None:
                answers.append((asked, self._opened(question, asked.caller)))
        for asked, answer in answers:
            asked.answer(answer)
        return taken

    def refused(self, why: str) -> None:
        """Ends the conversations whose questions are in the batch: Kafka has stored none of it, and never will."""
        under_way, self._under_way = self._under_way, []
        self._end(under_way, why)

    def lost(self, why: str) -> None:
        """Ends all conversations that wait, or have set up a writer. What is under way may be stored, by what is known here."""
        callers = [*self._by_caller]
        self._sessions.clear()
        self._by_caller.clear()
        waiting, self._waiting = self._waiting, deque()
        for caller in callers:
            caller.end(why)
        self._end([*self._under_way, *waiting], why)

    def ended(self, caller: Caller) -> None:
        """Forgets a conversation that has ended. What is under way may still be stored."""
        for asked in (*self._under_way, *self._waiting):
            if asked.caller is caller:
                asked.answer(OutcomeUnknown())
        self._waiting = deque(asked for asked in self._waiting if asked.caller or asked.question is None)
        for key in self._by_caller.pop(caller, ()):
            del self._sessions[key]

    def _forget(self, key: tuple[str, bytes]) -> _Session | None:
        """Removes and returns a writer's session, if it has one."""
        session = self._sessions.pop(key, None)
        if session is not None:
            of_caller = self._by_caller[session.caller]
            of_caller.remove(key)
            if not of_caller:
                del self._by_caller[session.caller]
        return session

    @staticmethod
    def _end(asked: list[_Asked], why: str) -> None:
        for each in asked:
            if each.caller is not None:
                each.caller.end(why)
                each.answer(OutcomeUnknown())

    def _judged(self, asked: _Asked, levels: dict[tuple[str, bytes], int]) -> Record | Answer | None:
        """Returns the record to store, or the answer if there is none. `levels`: of writers with blocks in the batch."""
        question = asked.question
        if isinstance(question, AppendBlock):
            return self._judged_block(question, asked.caller, levels)
        segment = self.fold.segments.get(asked.segment)
        if question is not None:
            creates = isinstance(question, CreateSegment) or question.numbering is Numbering.BYTES
            if segment is None and creates:
                exceeded = self._exceeds(asked.segment, None)
                return LimitExceeded(exceeded) if exceeded else Create()
            asked.exists = True
            return self.fold.claim
        assert asked.record is not None
        if isinstance(asked.record, Truncate) and (segment is None or asked.record.offset <= segment.start):
            return None
        return asked.record

    def _judged_block(
        self, block: AppendBlock, caller: Caller | None, levels: dict[tuple[str, bytes], int]
    ) -> Block | Appended | Refused:
        key = block.segment, block.writer
        session = self._sessions.get(key)
        if session is None or session.caller is not caller:
            return Refused(Refusal.SESSION)
        segment = self.fold.segments[block.segment]
        writer = segment.writers.get(block.writer)
        level = levels.get(key, writer.level if writer else session.numbering.first)
        if block.after <= level:
            return self._appended(block)
        if block.before != level:
            return Refused(Refusal.GAP)
        in_bytes = session.numbering is Numbering.BYTES
        if not block.data or (in_bytes and block.after - block.before != len(block.data)):
            return Refused(Refusal.NONSENSE)
        levels[key] = block.after
        return Block(block.writer, block.before, block.after, block.data)

    def _appended(self, block: AppendBlock) -> Appended:
        return Appended(block.after, self.fold.segments[block.segment].length)

    def _opened(self, question: OpenSession, caller: Caller) -> Opened | Refused | LimitExceeded:
        """Begins the writer's session at its level. If another connection has set it up, that one ends."""
        name, segment = question.segment, self.fold.segments.get(question.segment)
        if segment is None:
            return Refused(Refusal.NO_SEGMENT)
        writer = segment.writers.get(question.writer)
        if writer is None and (exceeded := self._exceeds(name, question.writer)):
            return LimitExceeded(exceeded)
        if writer is not None and writer.numbering is not question.numbering:
            return Refused(Refusal.NUMBERING)
        key = name, question.writer
        before = self._forget(key)
        self._sessions[key] = _Session(caller, question.numbering)
        self._by_caller.setdefault(caller, set()).add(key)
        if before is not None and before.caller is not caller:
            before.caller.end("taken_over")
        return Opened(writer.level if writer else question.numbering.first)
