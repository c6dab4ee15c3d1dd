"""Forward's UDP heartbeat: fluentd sends a datagram to ask whether it may send."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from headrace_common.listening.datagrams import DatagramEndpoint
from headrace_common.operations.settings import ListenSettings
from typing_extensions import override

ANSWER: Final = b"\0"
"""The datagram that fluentd sends (`heartbeat_type udp`) and expects back."""


class HeartbeatListener(DatagramEndpoint):
    """Answers UDP heartbeats, from `bind` on, while the service is ready."""

    name = "heartbeat"

    def __init__(self, listen: ListenSettings, port: int, ready_problems: Callable[[], list[str]]) -> None:
        """`port`: the protocol's own, used if the settings name none."""
        super().__init__(listen, port)
        self._ready_problems = ready_problems

    @override
    async def bind(self) -> str:
        address = await super().bind()
        self.read(True)
        return address

    @override
    def start(self) -> None:
        pass

    @override
    def arrived(self, bound: socket.socket) -> None:
        # A heartbeat asks whether to send, so stay silent while unready. One byte is never more than was received.
        with contextlib.suppress(OSError):  # of a client that has gone, or with a full buffer: it asks again
            data, address = bound.recvfrom(len(ANSWER))
            if data and not self._ready_problems():
                bound.sendto(ANSWER, address)
