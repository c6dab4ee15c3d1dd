"""Makes the sockets that a service listens on."""

from __future__ import annotations

import contextlib
import socket

from headrace_common.operations.errors import ConfigError


def bound_socket(host: str, port: int, setting: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Returns a socket that has its address and does not listen yet. `kind`: TCP's, or SOCK_DGRAM. Raises `ConfigError`, which
    names `setting`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as undone:
        try:
            bound = undone.enter_context(socket.socket(family, kind))
            if kind == socket.SOCK_STREAM:  # two could share an address of UDP
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
            bound.bind((host, port))
            bound.setblocking(False)
        except (OSError, UnicodeError) as error:  # also a kernel without IPv6, and a name that no resolver takes
            raise ConfigError(f"{setting} {host}:{port}: {getattr(error, 'strerror', None) or error}") from error
        undone.pop_all()
    return bound


def address_of(bound: socket.socket) -> str:
    """Returns the address that it has, as text."""
    address = bound.getsockname()
    return f"[{address[0]}]:{address[1]}" if bound.family == socket.AF_INET6 else f"{address[0]}:{address[1]}"
