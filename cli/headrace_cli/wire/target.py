"""Where a receiver is, and how to talk to it: an address or that of the stack, its protocol's client, and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from headrace_common.protocol import installed
from headrace_common.session.client import Client

from headrace_cli.ground import EXIT_NOTHING_RUNS, CommandError, check_known
from headrace_cli.stack.state import StateFolder

SYSTEM: Final = "system"
"""Value of `--ca`: the authorities that this machine trusts."""
CLIENTS: Final[Mapping[str, type[Client]]] = {
    protocol.name: resolve_name(protocol.client) for protocol in installed() if protocol.client
}
ASKED: Final[Mapping[str, type[Client]]] = {name: client for name, client in CLIENTS.items() if client.elsewhere}
"""The clients of the protocols that `conform` asks."""


@dataclass(frozen=True)
class Target:
    """Where a receiver listens. `tls`: how to speak TLS, if it does."""

    protocol: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``. Raises `CommandError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise CommandError(f"{text}: expected HOST:PORT.", status=2)
    return host.strip("[]"), int(port)


def target_of(protocol: str, state: Path, named: str, ca: str = "") -> Target:
    """Return the address `named`, or that of the stack in `state`. `ca`: a PEM file of authorities, or `SYSTEM`. Raises
    `CommandError`.
    """
    if ca and over_zeromq(protocol):
        raise CommandError("--ca: ZeroMQ has no TLS.", status=2)
    if named:
        return Target(protocol, *parse_address(named), tls_context(ca))
    folder = StateFolder(state)
    record = folder.what_runs()
    if not record:
        raise folder.nothing_runs("name a receiver: HOST:PORT")
    service = record["services"].get(protocol)
    if service is None:
        raise CommandError(f"The stack on {folder.path} runs without {protocol}.", status=EXIT_NOTHING_RUNS)
    host, _, port = service["address"].rpartition(":")
    if host in ("", "0.0.0.0", "::", "[::]"):  # noqa: S104  (the receiver listens on every address)
        host = "127.0.0.1"
    return Target(protocol, host.strip("[]"), int(port), tls_context(ca))


def why_not(target: Target, error: Exception, timeout: float) -> str:
    """Return one sentence, without its point, for a connection that did not come about."""
    if isinstance(error, ConnectionRefusedError):
        return f"{target.address} refuses connections: nothing listens there"
    if isinstance(error, TimeoutError):
        return f"{target.address} took no connection within {timeout:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{target.address} shows a certificate that is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) or (target.tls is not None and isinstance(error, OSError) and not error.errno):
        return f"{target.address} does not speak TLS as we do: {getattr(error, 'reason', None) or 'it ends the connection'}"
    return f"{target.address}: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"


def tls_context(ca: str) -> ssl.SSLContext | None:
    """Return how to speak TLS and trust `ca`; None for an empty text: plain. Raises `CommandError`."""
    if not ca:
        return None
    try:
        return ssl.create_default_context(cafile=None if ca == SYSTEM else ca)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"--ca {ca}: {getattr(error, 'strerror', None) or error}.", status=2) from error


def over_zeromq(protocol: str) -> bool:
    """Return whether clients of a protocol speak over ZeroMQ, which has no TLS."""
    return any(each.curve for each in installed() if each.name == protocol)


def client_of(protocol: str) -> type[Client]:
    """Return the client of a protocol. Raises `CommandError` with status 2 if the protocol is unknown."""
    check_known("protocol", [protocol], sorted(CLIENTS))
    return CLIENTS[protocol]
