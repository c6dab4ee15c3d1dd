"""The conversation with all producers of one socket, pure.

==============================================  ==================================================================
a producer sends                                it is answered
==============================================  ==================================================================
an event                                        202 when Kafka has stored it
what is too large or too deep to be stored      202 when it is in quarantine: to send it again could never help
what can never be an event                      400 when it is in quarantine
ping                                            200
anything without the empty frame in front       never
==============================================  ==================================================================

Answers to one route keep the order of its messages. A message that Kafka does not store within LOGJAM__ANSWER_TIME gets none, nor
do those that its sender sent after it until then: a producer that takes the next answer for this one would be told a lie. It is
stored all the same, if Kafka takes it later. A message that asks for no answer is kept until it is stored: no loss would show.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace_common.session.interface import Frame, KeepUntil, Message, MessageSession, Reply, Status, Ticket
from typing_extensions import override

from headrace_logjam.events import OVERHEAD, MessagesFrame, ProducerMaker, ProducerMessage
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import (
    ACCEPTED,
    PING,
    PONG,
    REFUSED,
    BodyLimits,
    Request,
    is_app_env,
    read_request,
    read_unanswered,
)

ENDPOINT: Final = b"producers"
"""The beginning of the ordering keys of producers' messages."""

SAID: Final = {ACCEPTED: "accepted", REFUSED: "refused", PONG: "ping"}
LATE: Final = "late"
"""The labels of answers that left (`SAID`), and of those that did not."""


@dataclass(slots=True, eq=False)
class _Question:
    """A message whose sender waits. `answer`: None until it is known; `over`: it gets none."""

    route: bytes
    name: bytes
    answer: bytes | None = None
    over: bool = False


@dataclass(slots=True, eq=False)
class _Gathered:
    """Messages that make one frame. `due`: when their senders stop waiting (monotonic). `stored`: how many are stored."""

    key: bytes
    asked: bool
    now_ms: int
    messages: list[ProducerMessage] = field(default_factory=list)
    questions: list[_Question] = field(default_factory=list)
    size: int = 0
    stored: int = 0
    due: float = 0.0
    frame: MessagesFrame[ProducerMessage] | None = None


def limits_of(limits: LogjamLimits) -> BodyLimits:
    """Returns the limits of an event, by the settings."""
    return BodyLimits(min(limits.event_bytes, limits.inflated_bytes), limits.ratio, limits.depth)


class ProducerSession(MessageSession):
    """See `headrace_common.session.interface.MessageSession`.

    Messages of one application that are read in one turn of the event loop make one frame. `host`: in the answer to a ping;
    `said` is called with each answer, `LATE` for one that did not leave.
    """

    def __init__(
        self,
        limits: LogjamLimits,
        answer_time: float,
        *,
        answers: bool,
        host: bytes = b"",
        said: Callable[[str], None] = lambda answer: None,
        ignored: Callable[[str], None] = lambda kind: None,
        publish: Callable[[Sequence[bytes], int], None] | None = None,
    ) -> None:
        """`answers`: the socket can answer.
        `publish`: takes the four frames of each message that is stored and not refused, and when it came (Unix time, ms).
        """
        self._maker = ProducerMaker(limits_of(limits))
        self._answer_time = answer_time
        self._answers = answers
        self._host = host
        self._said = said
        self._ignored = ignored
        self._publish = publish
        self._tickets = itertools.count()
        self._gathered: dict[bytes, _Gathered] = {}
        self._gathered_bytes = 0
        self._full: list[_Gathered] = []  # gathered, and no more belongs to them
        self._ready: deque[Frame] = deque()
        self._pending: dict[Ticket, _Gathered] = {}
        self._waiting: deque[_Gathered] = deque()  # those whose senders wait, the oldest first
        self._questions: dict[bytes, deque[_Question]] = {}  # by route
        self._due: deque[bytes] = deque()  # routes that may be answered
        self._now = 0.0  # when `tick` was called last

    # What decides that an answer may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Takes part i for message i, except when the whole frame is one reject by a mistake of ours: then `whole` covers them
        all.
        """
        gathered = self._pending[ticket]
        frame = gathered.frame
        assert frame is not None
        if whole:
            del self._pending[ticket]
            stored = len(frame.items)
        for index in range(gathered.stored, stored):
            request, refused = frame.items[index].request, index in frame.refused
            if self._publish is not None and not refused and not request.problem:
                self._publish(request.frames, gathered.now_ms)
            if gathered.asked:
                question = gathered.questions[index]
                question.answer = REFUSED if refused else ACCEPTED
                self._due.append(question.route)
        gathered.stored = max(gathered.stored, stored)

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Leaves the frame's questions, and all later ones of their routes, without an answer."""
        self._leave_unanswered(self._pending.pop(ticket))

    @override
    def outgoing(self) -> Reply | None:
        while self._due:
            route = self._due[0]
            questions = self._questions.get(route)
            if questions and (answer := questions[0].answer) is not None:
                question = questions.popleft()
                question.over = True
                self._said(SAID[answer])
                more = (self._host,) if answer is PONG else ()
                return Reply(route, (question.name, answer, *more))
            self._due.popleft()
            if questions is not None and not questions:
                del self._questions[route]
        return None

    def _leave_unanswered(self, gathered: _Gathered) -> None:
        for question in gathered.questions[gathered.stored :]:
            if not question.over:  # else its route has begun again
                for other in self._questions.pop(question.route, ()):
                    other.over = True
                    self._said(LATE)

    # Messages to frames

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        request = read_request(message.parts) if self._answers else read_unanswered(message.parts)
        if request.ping and not request.problem:
            self._pinged(request, message.route)
            return
        app_env = request.frames[0] if request.frames else b""
        key = app_env if is_app_env(app_env) else b""
        asked = request.asks
        gathered = self._gathered.get(key)
        if gathered is None or gathered.asked is not asked:
            if gathered is not None:
                self._full.append(gathered)
            gathered = self._gathered[key] = _Gathered(key, asked, now_ms)
        size = message.size + OVERHEAD
        gathered.messages.append(ProducerMessage(request, message.address))
        gathered.size += size
        self._gathered_bytes += size
        if asked:
            gathered.questions.append(self._ask(message.route, request.name))

    def _pinged(self, request: Request, route: bytes) -> None:
        if not request.asks:
            self._ignored(PING.decode())
            return
        self._ask(route, PING).answer = PONG
        self._due.append(route)

    def _ask(self, route: bytes, name: bytes) -> _Question:
        question = _Question(route, name)
        self._questions.setdefault(route, deque()).append(question)
        return question

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def deadline(self) -> float | None:
        """Returns now once something is gathered: messages read in one turn of the event loop belong together."""
        if self._gathered:
            return self._now
        while self._waiting and self._waiting[0].stored >= len(self._waiting[0].questions):
            self._waiting.popleft()
        return self._waiting[0].due if self._waiting else None

    @override
    def tick(self, now: float) -> None:
        self._now = now
        for gathered in (*self._full, *self._gathered.values()):
            self._hand_out(gathered, now + self._answer_time)
        self._full.clear()
        self._gathered.clear()
        self._gathered_bytes = 0
        while self._waiting and self._waiting[0].due <= now:
            self._leave_unanswered(self._waiting.popleft())

    def _hand_out(self, gathered: _Gathered, due: float) -> None:
        ticket = next(self._tickets)
        gathered.due = due
        gathered.frame = MessagesFrame(
            gathered.messages,
            ticket,
            gathered.now_ms,
            gathered.size,
            self._maker,
            ordering_key=b"%b/%b" % (ENDPOINT, gathered.key),
            acknowledged=gathered.asked,
            kept=KeepUntil.DEADLINE if gathered.asked else KeepUntil.STORED,
        )
        self._pending[ticket] = gathered
        self._ready.append(gathered.frame)
        if gathered.questions:
            self._waiting.append(gathered)

    @override
    def status(self) -> Status:
        return Status(partial_bytes=self._gathered_bytes, idle=not (self._pending or self._gathered))
