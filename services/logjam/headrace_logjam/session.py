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

Answers to one route keep the order of its messages, and carry no number. So where Kafka takes a message for
KAFKA__ACK_DEADLINE not at all, what its sender sent after it until then gets no answer either. A message that asks for no answer
waits without a deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace_common.session.interface import Message, Reply, Ticket
from typing_extensions import override

from headrace_logjam.events import ProducerMaker
from headrace_logjam.gathering import GatheringSession, MessagesFrame
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import (
    ACCEPTED,
    PING,
    PONG,
    REFUSED,
    BodyLimits,
    LogjamMessage,
    read_request,
    read_unanswered,
)

ENDPOINT: Final = b"producers"
"""The beginning of the ordering keys of producers' messages."""

SAID: Final = {ACCEPTED: "accepted", REFUSED: "refused", PONG: "ping"}
"""The labels of answers."""


@dataclass(slots=True, eq=False)
class _Question:
    """A message whose sender waits. `answer`: None until it is known."""

    route: bytes
    name: bytes
    answer: bytes | None = None


@dataclass(eq=False)
class ProducersFrame(MessagesFrame):
    """Messages that all ask for an answer, or none does."""

    questions: list[_Question] = field(default_factory=list)


def limits_of(limits: LogjamLimits) -> BodyLimits:
    """Returns the limits of an event, by the settings."""
    return BodyLimits(min(limits.event_bytes, limits.inflated_bytes), limits.ratio, limits.depth)


class ProducerSession(GatheringSession[ProducersFrame]):
    """See `headrace_common.session.interface.MessageSession`. `host`: in the answer to a ping; `said` is called with each
    answer that leaves.
    """

    def __init__(
        self,
        limits: LogjamLimits,
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
        super().__init__()
        self._maker = ProducerMaker(limits_of(limits))
        self._answers = answers
        self._host = host
        self._said = said
        self._ignored = ignored
        self._publish = publish
        self._questions: dict[bytes, deque[_Question]] = {}  # by route
        self._due: deque[bytes] = deque()  # routes that may be answered

    # What decides that an answer may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if not whole:
            return
        frame = self._pending.pop(ticket)
        for index, message in enumerate(frame.items):
            refused = index in frame.refused
            if self._publish is not None and isinstance(message, LogjamMessage) and not (refused or message.problem):
                self._publish(message.frames, frame.received_ms)
            if frame.acknowledged:
                question = frame.questions[index]
                question.answer = REFUSED if refused else ACCEPTED
                self._due.append(question.route)

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Leaves the frame's questions, and all later ones of their routes, without an answer."""
        for question in self._pending.pop(ticket).questions:
            if question in self._questions.get(question.route, ()):  # else its route has begun again
                del self._questions[question.route]

    @override
    def outgoing(self) -> Reply | None:
        while self._due:
            route = self._due[0]
            questions = self._questions.get(route)
            if questions and (answer := questions[0].answer) is not None:
                question = questions.popleft()
                self._said(SAID[answer])
                more = (self._host,) if answer is PONG else ()
                return Reply(route, (question.name, answer, *more))
            self._due.popleft()
            if questions is not None and not questions:
                del self._questions[route]
        return None

    # Messages to frames

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        request = (read_request if self._answers else read_unanswered)(message.parts, message.address)
        if not request.ping:
            frame = self.gather(request, message, now_ms)
            if request.asks:
                frame.questions.append(self._ask(message.route, request.name))
        elif request.asks:
            self._ask(message.route, PING).answer = PONG
            self._due.append(message.route)
        else:
            self._ignored(PING.decode())

    def _ask(self, route: bytes, name: bytes) -> _Question:
        question = _Question(route, name)
        self._questions.setdefault(route, deque()).append(question)
        return question

    @override
    def new_frame(self, ticket: Ticket, received_ms: int, message: LogjamMessage) -> ProducersFrame:
        ordering_key = b"%b/%b" % (ENDPOINT, message.key)
        return ProducersFrame(ticket, received_ms, self._maker, ordering_key, message.asks, not message.asks)
