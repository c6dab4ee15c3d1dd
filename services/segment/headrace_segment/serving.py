"""The sessions that one replica serves in one partition: which record each question becomes, and which caller gets its outcome.

Pure: records go out, and the fold's outcomes come in, in the order of the log, as for every other record. The answers follow from
these outcomes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headrace_common.connection.backend import Caller
from headrace_common.session.interface import Ticket

from headrace_segment.questions import AppendBlock, ChangeSegment, OpenSession, OutcomeUnknown, SessionLost
from headrace_segment.session.fifo import Fifo
from headrace_segment.store.outcomes import Appended, Changed, Opened, Outcome, Refusal, Refused
from headrace_segment.store.records import Block, Change, Numbering, Open, Renew

K = TypeVar("K")


@dataclass(slots=True)  # not frozen: one for each block
class _Asked:
    """A question whose record is under way. `after`: the level that a block brings; None: it opens the session."""

    ticket: Ticket
    since: float
    after: int | None = None


@dataclass(slots=True, eq=False)
class _Served:
    """A session of one of our connections. `over`: nothing more is appended in it; records under way are still answered."""

    id: bytes
    caller: Caller
    segment: str
    writer: bytes
    asked: Fifo[_Asked] = field(default_factory=Fifo)
    opened: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a segment, whose record is under way."""

    caller: Caller
    ticket: Ticket
    since: float


class ServedSessions:
    """`new_id` makes unique ids.

    The caller must produce the returned records once, in order, with one producer, and call `producer_lost` if that fails.
    Callbacks may re-enter this object.
    """

    def __init__(self, new_id: Callable[[], bytes]) -> None:
        self._new_id = new_id
        self._by_id: dict[bytes, _Served] = {}
        self._by_writer: dict[tuple[str, bytes], list[_Served]] = {}
        self._by_caller: dict[Caller, list[_Served]] = {}
        self._changes: dict[bytes, _Change] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def waiting(self) -> bool:
        """Whether a record is under way that a caller waits for."""
        return bool(self._changes) or any(served.asked for served in self._by_id.values())

    def serves(self, session: bytes) -> bool:
        """Returns whether a caller waits for the records of this session, or for this request for a change."""
        return session in self._by_id or session in self._changes

    def open(self, question: OpenSession, caller: Caller, now: float) -> Open:
        """Returns the record to produce."""
        served = _Served(self._new_id(), caller, question.segment, question.writer)
        served.asked.append(_Asked(question.ticket, now))
        self._by_id[served.id] = served
        self._by_writer.setdefault((served.segment, served.writer), []).append(served)
        self._by_caller.setdefault(caller, []).append(served)
        create = question.numbering is Numbering.BYTES
        return Open(question.writer, served.id, question.numbering, create=create)

    def append(self, question: AppendBlock, caller: Caller, now: float) -> Block | None:
        """Returns the record to produce. None: the session is over, and the caller has its answer."""
        served = self._by_id.get(question.session)
        if served is None or served.over:
            segment, writer, session, after = question.segment, question.writer, question.session, question.after
            caller.answered(question.ticket, Refused(segment, writer, session, after, Refusal.SESSION))
            return None
        served.asked.append(_Asked(question.ticket, now, question.after))
        return Block(question.writer, question.session, question.before, question.after, question.data)

    def change(self, question: ChangeSegment, caller: Caller, now: float) -> Change:
        """Returns the record to produce."""
        request = self._new_id()
        self._changes[request] = _Change(caller, question.ticket, now)
        return replace(question.change, request=request)

    def renewals(self, touched: Callable[[str, bytes], int | None], before: int) -> list[tuple[str, Renew]]:
        """Returns the records, by segment, for open sessions whose writers were last heard before that time of the log.
        `touched`: returns when a writer was heard.
        """
        found = []
        for served in self._by_id.values():
            last = touched(served.segment, served.writer) if served.opened and not served.over else None
            if last is not None and last < before:
                found.append((served.segment, Renew(served.writer, served.id)))
        return found

    def read_back(self, outcome: Outcome) -> None:
        """Takes the outcome of the next record of the log, which any replica may have produced."""
        if isinstance(outcome, Changed):
            if (asked := self._changes.pop(outcome.record.request, None)) is not None:
                asked.caller.answered(asked.ticket, outcome)
        elif isinstance(outcome, Opened):
            self._opened(outcome)
        elif isinstance(outcome, Appended):
            self._answer(outcome, outcome.level)
        elif isinstance(outcome, Refused):
            answer: Appended | Refused = outcome
            segment, writer, session, after = outcome.segment, outcome.writer, outcome.session, outcome.after
            if outcome.why is Refusal.REPEAT and after is not None:
                answer = Appended(segment, writer, session, after, outcome.length)
            self._answer(answer, after)

    def _opened(self, outcome: Opened) -> None:
        winner = self._by_id.get(outcome.session)
        for served in list(self._by_writer.get((outcome.segment, outcome.writer), ())):
            if served is not winner and served.opened and not served.over:
                self._finish(served)
                if winner is None or served.caller is not winner.caller:
                    served.caller.tell(SessionLost(served.writer, served.id))
        if winner is not None:
            winner.opened = True
        self._answer(outcome, None)

    def _answer(self, answer: Opened | Appended | Refused, after: int | None) -> None:
        served = self._by_id.get(answer.session)
        if served is None or (oldest := served.asked.oldest) is None or oldest.after != after:
            return
        served.asked.popleft()
        if served.over or not served.opened:
            self._finish(served)
        served.caller.answered(oldest.ticket, answer)

    def _finish(self, served: _Served) -> None:
        """Ends appending in a session, and forgets it when none of its records is under way."""
        served.over = True
        if not served.asked and self._by_id.pop(served.id, None) is not None:
            _take_out(self._by_writer, (served.segment, served.writer), served)
            _take_out(self._by_caller, served.caller, served)

    def ended(self, caller: Caller) -> None:
        """Ends the sessions of a conversation that has ended. Its records under way are still answered."""
        for served in list(self._by_caller.get(caller, ())):
            self._finish(served)

    def overdue(self, before: float) -> None:
        """Ends the conversations that have waited since before this time. Their records may still land, and are judged then."""
        late = [
            served.caller
            for served in self._by_id.values()
            if (oldest := served.asked.oldest) is not None and oldest.since < before
        ]
        for caller in dict.fromkeys(late):
            self._drop(list(self._by_caller[caller]), "ack_deadline")
        self._drop_changes([request for request, each in self._changes.items() if each.since < before], "ack_deadline")

    def producer_lost(self) -> None:
        """Ends all sessions: it is unknown which records under way are stored, and none is produced again."""
        self._drop(list(self._by_id.values()), "producer")
        self._drop_changes(list(self._changes), "producer")

    def _drop_changes(self, dropped: Iterable[bytes], why: str) -> None:
        for request in dropped:
            change = self._changes.pop(request)
            change.caller.end(why)
            change.caller.answered(change.ticket, OutcomeUnknown())

    def _drop(self, dropped: Iterable[_Served], why: str) -> None:
        for served in dropped:
            asked = list(served.asked.drain())
            self._finish(served)
            served.caller.end(why)
            for each in asked:
                served.caller.answered(each.ticket, OutcomeUnknown())


def _take_out(lists: dict[K, list[_Served]], key: K, served: _Served) -> None:
    lists[key].remove(served)
    if not lists[key]:
        del lists[key]
