"""A socket of ZeroMQ that the event loop reads: how much of it in a turn, and nothing once it has ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import zmq
from headrace_common.session.interface import Message, Reply
from headrace_logjam.reading import TURN, ReadSocket


async def test_a_turn_reads_a_bounded_number_however_much_is_sent() -> None:
    found: list[int] = []

    def received(messages: list[Message]) -> None:
        found[-1] += len(messages)

    connection: Any = SimpleNamespace(received=received)
    with zmq.Context() as context, context.socket(zmq.PAIR) as opened, context.socket(zmq.PAIR) as peer:
        opened.bind("inproc://read")
        peer.connect("inproc://read")
        for _ in range(5 * TURN):
            peer.send(b"x")
        read = ReadSocket(routed=False)
        read.open(opened, connection)
        while sum(found) < 5 * TURN:
            found.append(0)
            for _ in range(10):
                read.send(Reply(b"", [b"answer"]))
            await asyncio.sleep(0)
        assert max(found) <= 2 * TURN, "it looks once behind all answers, and once for its descriptor"
        read.end()
        read.read(True)
        assert not asyncio.get_running_loop().remove_reader(read._descriptor)
