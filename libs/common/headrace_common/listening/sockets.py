"""Makes the TCP sockets that a service listens on."""

from __future__ import annotations

import socket

from headrace_common.operations.errors import ConfigError


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
