"""The stream sockets that a service listens on: TCP, and a Unix socket if the settings name a path."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

from typing_extensions import override

from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.listening.listener import Listener, SessionFactory
from headrace_common.listening.proxy import ProxiedClient
from headrace_common.listening.tls import TlsContext
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.networks import normal
from headrace_common.operations.settings import ListenSettings
from headrace_common.operations.tasks import Tasks, own_name


def bound_socket(host: str, port: int, setting: str, *, shared: bool = False) -> socket.socket:
    """Returns a TCP socket that has its address and does not listen yet. Raises `ConfigError`, which names `setting`.

    `shared`: other processes of this user may listen there too; the kernel deals new connections out among those that listen.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:  # a kernel without IPv6
        raise ConfigError(f"{setting} {host}:{port}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(f"{setting} {host}:{port}: {error.strerror or error}") from error
    return bound


def address_of(bound: socket.socket) -> str:
    """Returns the address that it has, as text."""
    address = bound.getsockname()
    return f"[{address[0]}]:{address[1]}" if bound.family == socket.AF_INET6 else f"{address[0]}:{address[1]}"


class TcpListener(Listener):
    """A TCP socket, with TLS if a context is given."""

    name = "listen"

    def __init__(
        self,
        receiver: ReceiverState,
        tasks: Tasks,
        new_session: SessionFactory,
        listen: ListenSettings,
        port: int,
        tls: TlsContext | None,
    ) -> None:
        """`port`: the protocol's own, used if the settings name none."""
        super().__init__(receiver, tasks, new_session, tls, listen.proxies)
        self._host = listen.host
        self._port = listen.port or port
        self._shared = listen.reuse_port

    @override
    async def bind(self) -> str:
        self._socket = bound_socket(self._host, self._port, "LISTEN", shared=self._shared)
        return address_of(self._socket)

    @override
    def _client(self, name: Any) -> ProxiedClient:
        return ProxiedClient(normal(name[0]), name[1])

    @override
    def _identity(self, client: ProxiedClient) -> str:
        return client.address


class UnixListener(Listener):
    """A Unix socket, without TLS. It replaces a socket that a dead process left behind."""

    name = "socket"

    def __init__(self, receiver: ReceiverState, tasks: Tasks, new_session: SessionFactory, path: Path) -> None:
        super().__init__(receiver, tasks, new_session)
        self._path = path
        self._file: tuple[int, int] | None = None  # what `bind` made

    @override
    async def bind(self) -> str:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if self._path.is_socket() and not _answers(self._path):
                self._path.unlink()
            bound.bind(str(self._path))
            bound.setblocking(False)
        except OSError as error:
            bound.close()
            raise ConfigError(f"LISTEN__SOCKET {self._path}: {error.strerror or error}") from error
        self._socket = bound
        self._file = _file(self._path)
        return str(self._path)

    @override
    async def close(self) -> None:
        # First, and only its own: once no process answers there, another process may take the path.
        if self._file is not None and self._file == _file(self._path):
            with contextlib.suppress(
                OSError
            ):  # a folder that is read-only by now must not keep anyone from being drained
                self._path.unlink()
        await super().close()

    @override
    def _client(self, name: Any) -> ProxiedClient:
        return ProxiedClient("unix", 0)

    @override
    def _identity(self, client: ProxiedClient) -> str:
        return own_name()


def _file(path: Path) -> tuple[int, int] | None:
    """Returns the device and inode of a path; None if it does not exist."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _answers(path: Path) -> bool:
    """Returns whether a process listens on the Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True
