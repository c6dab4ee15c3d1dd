"""Judges what is to be appended to the log by its owner, who alone appends to it. Pure.

A question is judged when it comes, by what is stored or on its way. `fill` lays the records into a batch, in their order;
`stored` changes the state and answers. So an answer never tells what Kafka has not stored.

To set up a writer, or to create a segment that is there already, stores the owner's claim again: if that is stored, no other
process has become the owner meanwhile, and the answer is true. So the level of a writer never goes back.

One connection at a time holds a writer: that which has set it up last. It alone appends, and asks block after block from the
level that it was told: so each begins where the one before it ends.
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

Asks = OpenSession | AppendBlock | CreateSegment


@dataclass(slots=True)  # not frozen: one for each block
class _Asked:
    """A question. `caller`: None if it waits for no answer any more."""

    question: Asks
    caller: Caller | None
    record: Claim | Block | Create | None = None
    """None: there is only an answer."""
    refusal: Refusal | None = None

    @property
    def segment(self) -> str:
        """The segment that the record is about."""
        return "" if isinstance(self.record, Claim) else self.question.segment

    def answer(self, answer: object) -> None:
        caller, self.caller = self.caller, None
        if caller is not None:
            caller.answered(self.question.ticket, answer)


class Appending:
    """Judges by `fold`, which changes here only. `segments`, `writers`: the most of the log, and of one segment."""

    def __init__(self, fold: Fold, segments: int, writers: int) -> None:
        self.fold = fold
        self._most_segments = segments
        self._most_writers = writers
        self._waiting: deque[_Asked] = deque()
        self._under_way: list[_Asked] = []
        self._holders: dict[tuple[str, bytes], Caller] = {}
        self._held: dict[Caller, set[tuple[str, bytes]]] = {}
        self._creating: set[str] = set()

    def __bool__(self) -> bool:
        """Whether a record waits or is under way."""
        return bool(self._waiting or self._under_way)

    def holds(self, segment: str, writer: bytes) -> bool:
        """Returns whether a connection has set up the writer."""
        return (segment, writer) in self._holders

    def ask(self, question: Asks, caller: Caller) -> None:
        """Judges a question, and queues its record or its answer."""
        asked, name = _Asked(question, caller), question.segment
        self._waiting.append(asked)
        if isinstance(question, AppendBlock):
            if self._holders.get((name, question.block.writer)) is caller:
                asked.record = question.block
            else:
                asked.refusal = Refusal.SESSION
            return
        if name in self.fold.segments or name in self._creating:
            asked.record = self.fold.claim
            asked.refusal = Refusal.EXISTS if isinstance(question, CreateSegment) else None
        elif isinstance(question, OpenSession) and question.numbering is Numbering.EVENTS:
            asked.record = self.fold.claim
        elif len(self.fold.segments) + len(self._creating) >= self._most_segments:
            asked.refusal = Refusal.SEGMENTS
        else:
            asked.record = Create()
            self._creating.add(name)
        if isinstance(question, OpenSession):
            self._take_over((name, question.writer), caller)

    def _take_over(self, key: tuple[str, bytes], caller: Caller) -> None:
        """Gives the writer to this connection. If another one has set it up, that one ends."""
        former, self._holders[key] = self._holders.get(key, caller), caller
        self._held.setdefault(caller, set()).add(key)
        if former is not caller:
            former.end("taken_over")

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
        """Tells the writer's level, unless it was taken over meanwhile."""
        key = question.segment, question.writer
        if caller is None or self._holders.get(key) is not caller:
            return Refused(Refusal.SESSION)
        segment = self.fold.segments.get(question.segment)
        writer = segment.writers.get(question.writer) if segment else None
        if segment is not None and (writer is not None or len(segment.writers) < self._most_writers):
            return Opened(writer.level if writer else question.numbering.first)
        del self._holders[key]
        return Refused(Refusal.NO_SEGMENT if segment is None else Refusal.WRITERS)

    def lost(self, why: str) -> None:
        """Ends all conversations that wait, or have set up a writer. What is under way may be stored, by what is known here."""
        asked = [*self._under_way, *self._waiting]
        callers = {**self._held, **{each.caller: None for each in asked if each.caller is not None}}
        for kept in (self._waiting, self._under_way, self._holders, self._held, self._creating):
            kept.clear()
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
        self._waiting = deque(each for each in self._waiting if each.caller or isinstance(each.record, Create))
        for key in self._held.pop(caller, ()):
            if self._holders.get(key) is caller:
                del self._holders[key]
