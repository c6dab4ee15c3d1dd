"""What the suite relies on when it chooses a port before somebody listens there."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from tests.contract.ports import HOST, Reserved


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be held for somebody else")
async def test_a_reserved_port_is_taken_by_who_asks_for_it_and_by_nobody_else() -> None:
    reserved = Reserved()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, reserved.port))
    for _ in range(2):  # also after it was closed
        async with await asyncio.start_server(lambda *_: None, HOST, reserved.port):
            _, writer = await asyncio.open_connection(HOST, reserved.port)
            writer.close()
    reserved.give_back()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the connections of above have just ended
        other.bind((HOST, reserved.port))
