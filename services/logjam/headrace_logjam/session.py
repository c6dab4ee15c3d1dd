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

from headrace_common.session.interface import Message, Reply, Ticket
from typing_extensions import override

from headrace_logjam.events import RecordMaker
from headrace_logjam.gathering import GatheringSession
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import ACCEPTED, PING, PONG, REFUSED, LogjamMessage, read_request, read_unanswered


class ProducerSession(GatheringSession):
    """See `headrace_common.session.interface.MessageSession`. `host`: in the answer to a ping."""

    def __init__(
        self,
        limits: LogjamLimits,
        *,
        answers: bool,
        host: bytes = b"",
        publish: Callable[[Sequence[bytes], int], None] | None = None,
    ) -> None:
        """`answers`: the socket can answer.
        `publish`: takes the four frames of each message that is stored and not refused, and when it came (Unix time, ms).
        """
        super().__init__(b"producers", RecordMaker(limits))
        self._read = read_request if answers else read_unanswered
        self._host = host
        self._publish = publish
        self._questions: dict[bytes, deque[LogjamMessage]] = {}  # by route
        self._due: deque[bytes] = deque()  # routes that may be answered

    # What decides that an answer may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if not whole:
            return
        frame = self._pending.pop(ticket)
        for index, message in enumerate(frame.messages):
            refused = index in frame.refused
            if self._publish is not None and not (refused or message.problem):
                self._publish(message.frames, frame.received_ms)
            if message.asks:
                message.answer = message.name, REFUSED if refused else ACCEPTED
                message.frames = ()  # it may wait for those before it
                self._due.append(message.route)

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Leaves the frame's questions, and all later ones of their routes, without an answer."""
        for message in self._pending.pop(ticket).messages:
            if message in self._questions.get(message.route, ()):  # else its route has begun again
                del self._questions[message.route]

    @override
    def outgoing(self) -> Reply | None:
        while self._due:
            route = self._due[0]
            questions = self._questions.get(route)
            if questions and (answer := questions[0].answer) is not None:
                questions.popleft()
                return Reply(route, answer)
            self._due.popleft()
            if questions is not None and not questions:
                del self._questions[route]
        return None

    # Messages to frames

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        request = self._read(message.parts, message.address)
        if request.asks:
            request.route = message.route
            self._questions.setdefault(message.route, deque()).append(request)
        if not request.ping:
            self.gather(request, message, now_ms)
        elif request.asks:
            request.answer = PING, PONG, self._host
            self._due.append(message.route)
