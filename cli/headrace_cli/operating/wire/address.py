"""Where a receiver is: an address that was named, or that of the stack; and why it cannot be reached."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from headrace_cli.errors import EXIT_NOTHING_RUNS, CommandError
from headrace_cli.operating.wire.security import Curve, Login, Security
from headrace_cli.places import command
from headrace_cli.stack.state import StateFolder


@dataclass(frozen=True)
class Target:
    """Where a receiver listens. `tls`: how to speak TLS, if it does; `login`: of Forward; `curve`: of Logjam."""

    protocol: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    login: Login | None = None
    curve: Curve | None = None

    @property
    def address(self) -> str:
        """As ``host:port``."""
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``. Raises `CommandError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise CommandError(f"{text}: expected HOST:PORT.", status=2)
    return host.strip("[]"), int(port)


def target_of(protocol: str, state: Path, named: str, security: Security) -> Target:
    """The address `named`, or that of the stack in `state`, which says its authority and keys. Raises `CommandError`."""
    security.check(protocol)
    if named:
        return Target(protocol, *parse_address(named), security.context(), security.login(), security.curve())
    folder = StateFolder(state)
    record = folder.read_record() if folder.running() else {}
    if not record:
        raise CommandError(
            f"Nothing runs on {folder.path}: start it ({command('up', folder.path)}), or name a receiver: HOST:PORT.",
            status=EXIT_NOTHING_RUNS,
        )
    service = record["services"].get(protocol)
    if service is None:
        raise CommandError(f"The stack on {folder.path} runs without {protocol}.", status=EXIT_NOTHING_RUNS)
    host, _, port = service["listen"].rpartition(":")
    context, curve = security.context(service.get("ca") or ""), security.curve(service.get("keys") or "")
    return Target(protocol, _reachable(host), int(port), context, security.login(), curve)


def _reachable(host: str) -> str:
    """What listens everywhere is reached by loopback."""
    return "127.0.0.1" if host in ("", "0.0.0.0", "::", "[::]") else host.strip("[]")  # noqa: S104


class RefusedError(ConnectionError):
    """A server took the connection and refuses us. The text says what it does: ``refuses the login: …``."""


def why_not(target: Target, error: Exception, timeout: float) -> str:
    """One sentence, without its point, for a connection that did not come about."""
    if isinstance(error, RefusedError):
        return f"{target.address} {error}"
    if isinstance(error, ConnectionRefusedError):
        return f"{target.address} refuses connections: nothing listens there"
    if isinstance(error, TimeoutError):
        return f"{target.address} took no connection within {timeout:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{target.address} shows a certificate that is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{target.address} does not speak TLS as we do: {error.reason or error}"
    return f"{target.address}: {getattr(error, 'strerror', None) or error}"
