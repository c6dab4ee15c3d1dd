"""The seam between the suite and a protocol: what a client of it says, as bytes, and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self

from headrace_common.record.contract import Reason
from headrace_common.session.client import STREAM, Client
from headrace_conform.bench import Line

from tests.contract.waiting import PATIENCE

FRAME_BYTES: Final = 1 << 20
EVENT_BYTES: Final = 128 << 10
"""Limits of the receiver that the suite's tests share."""

Values = Sequence[Mapping[str, Any]]
"""The events of a frame as the client means them; each has `mark` and `n` (see `values`)."""


class Conversation:
    """A protocol's client as the suite uses it. Its frames are numbered from 0; the first one brings the greeting along."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._greeting = client.again()

    def frame(self, values: Values) -> bytes:
        """The next frame, complete; asks for an acknowledgement."""
        return self._greeted(self.client.frame(values))

    def faulty(self, values: Values) -> bytes:
        """The next frame, soundly framed, with one event more, in the middle, that cannot be understood.

        The bytes of that event, as quarantine keeps them, hold the `mark` of the others.
        """
        return self._greeted(self.client.faulty(values))

    def equal(self, event: Mapping[str, Any], count: int) -> bytes:
        """The next frame, of equal events: of the same bytes, unless that would be one event, sent again."""
        made = [self.client.document(event) for _ in range(count)]
        self.client.compression = ""
        return self._greeted(self.client.payload(made if self.client.named else made[:1] * count))

    def legible(self, values: Values) -> bytes:
        """The next frame, not compressed: see `retold`."""
        self.client.compression = ""
        return self._greeted(self.client.frame(values))

    def retold(self, frame: bytes, mark: str, other: str) -> bytes:
        """A `legible` frame with all that names it, and in its events another mark of the same length."""
        return frame.replace(mark.encode(), other.encode())

    def _greeted(self, frame: bytes) -> bytes:
        greeting, self._greeting = self._greeting, b""
        return greeting + frame

    def again(self) -> None:
        """A new connection, on which all frames are sent again, in order. What of a reply has arrived is gone."""
        self.client.again()
        for frame in range(self.client.made):
            self.client.repeat(frame)

    def receive(self, data: bytes) -> Iterable[object]:
        """As `Client.receive`, of the server's next bytes."""
        return self.client.receive(data)


NO_SECTIONS: Mapping[str, Mapping[str, object]] = MappingProxyType({})


class Dialect:
    """One protocol. By default a connection begins with its first frame, and its receiver needs no settings."""

    name: str
    """As in ``headrace_<name>``."""

    client: type[Client]
    """Speaks it."""

    variant = ""
    """Which of a receiver's dialects, if it has several; empty: the first, which the quick tier tries."""

    module = ""
    """What runs in place of the receiver, as ``python -m``; empty: itself."""

    sections: Mapping[str, Mapping[str, object]] = NO_SECTIONS
    """Settings of its own with which it runs in this suite. A test's sections win."""

    content_type = "application/json"
    """Of its events."""

    segments = 0
    """Partitions of the segments topic that it needs; 0: it needs none."""

    connection = True
    """A client has a TCP connection of its own: the receiver ends it and no other, the client may end its side and still hear,
    and it may be encrypted. While the receiver stops, nobody can connect, and who is connected still hears. Else tests marked
    `connection` are not collected.
    """

    stored_again = True
    """A frame that a client sends again may be stored again, with the same ids. Else tests marked `stored_again` are not
    collected.
    """

    fault = Reason.BAD_JSON
    """Why the event that `Conversation.faulty` adds goes to quarantine."""

    malformed: bytes
    """What may not stand where a frame begins."""

    added: frozenset[str] = frozenset()
    """What the protocol's own client adds to an event."""

    def conversation(self) -> Conversation:
        """A new one."""
        return Conversation(self.client())

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What is said on a new connection, turn by turn, before its first frame."""

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        """What the suite meant, of an event as it is stored: without what the protocol's own clients add."""
        return {name: item for name, item in stored.items() if name not in self.added}

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        """Asserts what is the protocol's own about a record of `Conversation.frame`."""
        assert record_headers["ce_subject"] == STREAM.encode()
        assert record_headers["ce_id"].startswith(b"d.")


def values(count: int, mark: str = "", **more: Any) -> list[dict[str, Any]]:
    """`count` events that no other test sends."""
    mark = mark or uuid.uuid4().hex
    return [{"mark": mark, "n": n, "text": f"line {n} – ü", **more} for n in range(count)]


class ContractClient:
    """One connection of a client. Reads all the time, as a client should."""

    def __init__(self, conversation: Conversation, line: Line) -> None:
        self.conversation = conversation
        self._line = line
        self._numbers = itertools.count()
        self._listening = asyncio.create_task(line.listen())

    @classmethod
    async def connect(
        cls, dialect: Dialect, address: tuple[str, int], context: ssl.SSLContext | None = None,
        conversation: Conversation | None = None,
    ) -> Self:  # fmt: skip
        """A new connection; with `conversation`, of a client that goes on where an earlier connection of its broke off."""
        reader, writer = await asyncio.open_connection(
            *address, ssl=context, server_hostname="localhost" if context else None
        )
        await dialect.greet(reader, writer)
        if conversation is not None:
            conversation.again()
        speaks: Any = conversation or dialect.conversation()  # hears as its client does
        return cls(speaks, Line(speaks, reader, writer))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.cancel()
        self._line.writer.close()
        with contextlib.suppress(OSError):
            await self._line.writer.wait_closed()

    @property
    def acknowledged(self) -> list[int]:
        """The frames of which all is, in order."""
        return [answer.frame for _, answer in self._line.answers if answer.whole]

    @property
    def closed(self) -> bool:
        return bool(self._line.ended)

    @property
    def local(self) -> str:
        """This end's `host:port`, as the receiver's log names it."""
        host, port = self._line.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def buffers(self, size: int) -> None:
        """The kernel keeps at most about `size` bytes that are written and not sent."""
        self._line.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    async def write(self, data: bytes) -> None:
        """Any bytes."""
        self._line.writer.write(data)
        await self._line.writer.drain()

    async def send_frame(self, frame: bytes) -> int:
        """A frame that the conversation has made; its number."""
        await self.write(frame)
        return next(self._numbers)

    async def send(self, frame: Values) -> int:
        """A frame of these events; its number."""
        return await self.send_frame(self.conversation.frame(frame))

    async def send_faulty(self, frame: Values) -> int:
        """As `Conversation.faulty`."""
        return await self.send_frame(self.conversation.faulty(frame))

    def finish(self) -> None:
        """Sends no more, but reads on."""
        self._line.finish()

    async def receives(self, number: int) -> None:
        """Waits for the acknowledgement of frame `number`."""
        await self.waits_for(lambda: number in self.acknowledged, PATIENCE)
        assert number in self.acknowledged, f"frame {number} not acknowledged, closed: {self.closed}"

    async def sees_end(self) -> None:
        """Waits until the server has closed."""
        await self.waits_for(lambda: self.closed, PATIENCE)
        assert self.closed, f"the server has not closed, and acknowledged {self.acknowledged}"

    async def hears_nothing(self, seconds: float) -> None:
        """For so long neither acknowledgement nor end."""
        before = self.acknowledged
        await self.waits_for(lambda: self.acknowledged != before, seconds)
        assert self.acknowledged == before, f"acknowledged: {self.acknowledged[len(before) :]}"
        assert not self.closed, "closed"

    async def waits_for(self, condition: Callable[..., bool], seconds: float) -> None:
        """Until the condition holds, the server closes or the time is over. Fails if the server says what none may say."""
        await self._line.until(condition, seconds)
        assert not self._line.fault, self._line.fault
