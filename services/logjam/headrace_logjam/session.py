"""The conversation with all producers of one socket, pure.

==============================================  ==================================================================
a producer sends                                it is answered
==============================================  ==================================================================
an event                                        202 when Kafka has stored it
what is too large or too deep to be stored      202 when it is in quarantine: to send it again could never help
what can never be an event                      400 when it is in quarantine
ping                                            200
anything without the empty frame in front       never
anything of a client that names its connection  never: ZeroMQ would hand the answer to its next one (ZMQ_ROUTING_ID)
==============================================  ==================================================================

Answers to one route keep the order of its messages, and carry no number. So where one is missing, because Kafka did not store its
message or too many wait, no later one leaves on that connection. A message that is not answered waits without a deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headrace_common.session.interface import Message, Reply, Ticket
from typing_extensions import override

from headrace_logjam.events import RecordMaker
from headrace_logjam.gathering import GatheringSession
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import ACCEPTED, PING, PONG, REFUSED, LogjamMessage, read_request, read_unanswered

UNNAMED: Final = b"\0"
"""The beginning of a route that ZeroMQ has chosen; no client may choose one (ZMQ_ROUTING_ID)."""

MOST_QUESTIONS: Final = 100_000
"""Questions of all clients that may wait for their answers, and routes that are remembered to get none: some 500 bytes each."""


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
        self._waiting = 0  # of these
        self._silent: dict[bytes, None] = {}  # routes that are not answered any more, the oldest first
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
            if message.asks:
                self._silence(message.route)

    def _silence(self, route: bytes) -> None:
        """Answers a route no more: the next answer would be taken for the one that is missing."""
        self._waiting -= len(self._questions.pop(route, ()))
        self._silent[route] = None
        if len(self._silent) > MOST_QUESTIONS:
            del self._silent[next(iter(self._silent))]

    @override
    def outgoing(self) -> Reply | None:
        while self._due:
            route = self._due[0]
            questions = self._questions.get(route)
            if questions and (answer := questions[0].answer) is not None:
                questions.popleft()
                self._waiting -= 1
                return Reply(route, answer)
            self._due.popleft()
            if questions is not None and not questions:
                del self._questions[route]
        return None

    # Messages to frames

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        request = self._read(message.parts, message.address)
        request.asks = request.asks and self._may_be_answered(message.route)
        if request.asks:
            request.route = message.route
            self._questions.setdefault(message.route, deque()).append(request)
            self._waiting += 1
        if not request.ping:
            self.gather(request, message, now_ms)
        elif request.asks:
            request.answer, request.frames = (PING, PONG, self._host), ()  # it may wait for those before it
            self._due.append(message.route)

    def _may_be_answered(self, route: bytes) -> bool:
        if self._waiting >= MOST_QUESTIONS:
            self._silence(route)
        return route.startswith(UNNAMED) and route not in self._silent
