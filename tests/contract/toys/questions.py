"""A toy whose session asks its service before it publishes, and is told something unasked.

``python -m tests.contract.toys.questions``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from headrace_common.connection.backend import Backend, Caller
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings, ServiceSettings
from headrace_common.service.parts import Own, Parts, Runtime
from headrace_common.service.service import main, stream_listeners
from headrace_common.session.interface import ByteSession, Frame, Peer, Question, Status, Ticket
from headrace_common.session.ledger import Ledger
from typing_extensions import override

from tests.contract.toys.wire import HEADER, Cutter, ToyFrame, packed

PROTOCOL = "segment"

DEADLY = packed({"id": "deadly", "events": []})
"""A question that ends the task which answers: a bug of ours, as far as the service can tell."""


@dataclass(frozen=True)
class MayStore:
    """The question: may this message be stored?"""

    ticket: Ticket
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)


class ToyQuestions(ByteSession):
    """A message is published when the service has said yes, and acknowledged when it is stored."""

    def __init__(self, peer: Peer, limits: LimitSettings) -> None:
        self._peer = peer
        self._limits = limits
        self._cutter = Cutter(limits.frame_bytes)
        self._numbers = itertools.count()
        self._asked: dict[Ticket, tuple[bytes, int]] = {}
        self._questions: deque[Question] = deque()
        self._ready: deque[Frame] = deque()
        self._pending: Ledger[str] = Ledger()
        self._words: deque[bytes] = deque()

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        for body in self._cutter.feed(data):
            try:
                json.loads(body)["id"]
            except (ValueError, KeyError, TypeError) as error:
                raise ProtocolError("no message") from error
            question = MayStore(next(self._numbers), body)
            self._asked[question.ticket] = (body, now_ms)
            self._questions.append(question)

    @override
    def questions(self) -> Iterator[Question]:
        while self._questions:
            yield self._questions.popleft()

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        body, now_ms = self._asked.pop(ticket)
        if answer is not True:
            raise ProtocolError("the service said no")
        pending = self._pending.add(json.loads(body)["id"])
        self._ready.append(ToyFrame(PROTOCOL, self._peer.identity, body, pending, now_ms, self._limits))

    @override
    def told(self, word: object) -> None:
        self._words.append(packed({"word": word}))

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._pending.stored(ticket, stored, whole)

    @override
    def abandon(self, ticket: Ticket) -> None:
        pass

    @override
    def outgoing(self) -> bytes:
        if self._words:
            return self._words.popleft()
        oldest = self._pending.pop_whole()
        return b"" if oldest is None else packed({"ack": oldest.note})

    @override
    def eof(self) -> None:
        if self._cutter.data:
            raise ProtocolError("the stream ends inside a message", offset=self._cutter.offset)

    @override
    def status(self) -> Status:
        idle = not (self._asked or len(self._pending) or self._cutter.data)
        return Status(partial_bytes=len(self._cutter.data), idle=idle)


class Oracle(Own, Backend):
    """Answers each question after a turn of the loop or two, and then says an unasked word to whoever has asked."""

    def __init__(self, runtime: Runtime[ServiceSettings]) -> None:
        self._runtime = runtime
        self._asked: asyncio.Queue[tuple[Question, Caller]] = asyncio.Queue()
        self._gone: set[Caller] = set()
        self._ready = False

    @override
    async def start(self) -> None:
        self._runtime.tasks.start(self._work(), "oracle")
        self._ready = True

    @override
    async def stop(self) -> None:
        assert self._asked.empty()

    @override
    def ready_problems(self) -> list[str]:
        return [] if self._ready else ["the oracle sleeps"]

    @override
    def ask(self, question: Question, caller: Caller) -> None:
        self._asked.put_nowait((question, caller))

    @override
    def ended(self, caller: Caller) -> None:
        pass  # its questions are answered all the same

    async def _work(self) -> None:
        while True:
            question, caller = await self._asked.get()
            await asyncio.sleep(0)
            assert isinstance(question, MayStore)
            if question.body == DEADLY[HEADER:]:
                raise RuntimeError("asked what must not be asked")
            caller.answered(question.ticket, True)
            caller.tell("by the way")


def build(runtime: Runtime[ServiceSettings]) -> Parts:
    oracle = Oracle(runtime)
    sessions = stream_listeners(runtime, 0, lambda peer: ToyQuestions(peer, runtime.settings.limits))
    return Parts(sessions, own=oracle, backend=oracle)


if __name__ == "__main__":
    main(PROTOCOL, "python -m tests.contract.toys.questions", ServiceSettings, build)
