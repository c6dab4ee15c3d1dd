"""TCP ports of this machine: which are free, and which process holds the others."""

from __future__ import annotations

import errno
import socket

import psutil

from headrace_cli.errors import CommandError


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now. Another process may take it before the caller does. Raises `CommandError` as below."""
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise _no_address(host, error) from error
        port: int = probe.getsockname()[1]
        return port


def is_taken(host: str, port: int) -> bool:
    """Return whether `host`:`port` cannot be listened on, because it is in use or reserved for root.

    Raises `CommandError` if `host` is no IPv4 address of this machine.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return True
            raise _no_address(host, error) from error
    return False


def _no_address(host: str, error: OSError) -> CommandError:
    return CommandError(
        f"Nothing can listen on {host}: {error.strerror}. It is an IPv4 address of this machine.", status=2
    )


def holder(port: int) -> str:
    """Return who listens on `port`, for a message: name and pid, or less when this user may not know them."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    if port < 1024:
        return "another process, or it needs root"
    return "another user's process"
