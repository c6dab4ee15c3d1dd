"""Forward's UDP heartbeat: fluentd sends a datagram to ask whether it may send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import ListenSettings
from typing_extensions import override

ANSWER: Final = b"\0"
"""The datagram that fluentd sends (`heartbeat_type udp`) and expects back."""


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, ready_problems: Callable[[], list[str]]) -> None:
        self._ready_problems = ready_problems
        self._transport: asyncio.DatagramTransport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        # A heartbeat asks whether to send, so stay silent while unready. One byte is never more than was received.
        if data and not self._ready_problems():
            self._transport.sendto(ANSWER, addr)


class HeartbeatListener(Endpoint):
    """Answers UDP heartbeats, from `bind` on, while the service is ready."""

    def __init__(self, listen: ListenSettings, port: int, ready_problems: Callable[[], list[str]]) -> None:
        """`port`: the protocol's own, used if the settings name none."""
        self._host = listen.host
        self._port = listen.port or port
        self._ready_problems = ready_problems
        self._transport: asyncio.DatagramTransport | None = None

    @override
    async def bind(self) -> str:
        try:
            self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self._ready_problems), local_addr=(self._host, self._port)
            )
        except OSError as error:
            raise ConfigError(f"LISTEN {self._host}:{self._port} (UDP): {error.strerror or error}") from error
        return f"{self._host}:{self._port}"

    @override
    def start(self) -> None:
        pass

    @override
    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
