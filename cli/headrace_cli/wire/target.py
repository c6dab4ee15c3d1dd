"""Where a receiver is, and how to talk to it: an address or that of the stack, its protocol's client, TLS, logins and keys."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

import zmq
from headrace_common.protocol import installed
from headrace_common.session.client import Client, Compression
from zmq.utils import z85

from headrace_cli.ground import EXIT_NOTHING_RUNS, CommandError, check_known
from headrace_cli.stack.certificates import CurveKeys
from headrace_cli.stack.state import StateFolder

SYSTEM: Final = "system"
"""Value of `ClientSecurity.ca`: the authorities that this machine trusts."""
FILE_BYTES: Final = 64 << 10
"""Most bytes of a file with secrets."""
SECRETS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "forward": {"shared_key": (), "user": ("shared_key", "password"), "password": ("user",)},
    "logjam": {"curve_server": ("curve_key",), "curve_key": ("curve_server",)},
}
"""Names that a file of secrets may have for each protocol, and what else each needs."""
CLIENTS: Final[Mapping[str, type[Client]]] = {
    protocol.name: resolve_name(protocol.client) for protocol in installed() if protocol.client
}
ASKED: Final[Mapping[str, type[Client]]] = {name: client for name, client in CLIENTS.items() if client.elsewhere}
"""The clients of the protocols that `conform` asks."""


@dataclass(frozen=True)
class Target:
    """Where a receiver listens. `tls`: how to speak TLS, if it does; `login`: of Forward; `curve`: of Logjam."""

    protocol: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    login: Login | None = None
    curve: CurveLogin | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``. Raises `CommandError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise CommandError(f"{text}: expected HOST:PORT.", status=2)
    return host.strip("[]"), int(port)


def target_of(protocol: str, state: Path, named: str, security: ClientSecurity) -> Target:
    """Return the address `named`, or that of the stack in `state`, which says its authority and keys. Raises `CommandError`."""
    security.check(protocol)
    if named:
        return Target(protocol, *parse_address(named), security.context(), security.login(), security.curve())
    folder = StateFolder(state)
    record = folder.what_runs()
    if not record:
        raise folder.nothing_runs("name a receiver: HOST:PORT")
    service = record["services"].get(protocol)
    if service is None:
        raise CommandError(f"The stack on {folder.path} runs without {protocol}.", status=EXIT_NOTHING_RUNS)
    host, _, port = service["listen"].rpartition(":")
    context, curve = security.context(service.get("ca") or ""), security.curve(service.get("keys") or "")
    if host in ("", "0.0.0.0", "::", "[::]"):  # noqa: S104  (the receiver listens on every address)
        host = "127.0.0.1"
    return Target(protocol, host.strip("[]"), int(port), context, security.login(), curve)


class RefusedError(ConnectionError):
    """A server took the connection and refuses us. The text says what it does: ``refuses the login: …``."""


def why_not(target: Target, error: Exception, timeout: float) -> str:
    """Return one sentence, without its point, for a connection that did not come about."""
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


@dataclass(frozen=True)
class Login:
    """Forward's handshake: the shared key, and a user with a password if the server asks for one."""

    shared_key: str
    user: str = ""
    password: str = ""


@dataclass(frozen=True)
class CurveLogin:
    """ZeroMQ's CURVE, each key in Z85: the server's public one, and our own pair."""

    server: bytes
    public: bytes
    secret: bytes


@dataclass(frozen=True)
class ClientSecurity:
    """The user's options. `ca`: a PEM file of authorities, or `SYSTEM`; `cert`: a PEM file with our certificate and its key.

    `login_file`: one of ``name=value`` lines, so that no list of processes shows a secret; see `SECRETS`.
    """

    ca: str = ""
    cert: Path | None = None
    login_file: Path | None = None

    def check(self, protocol: str) -> None:
        """Raise `CommandError` if the protocol has no TLS or none of the secrets, or if one of a pair is missing."""
        if over_zeromq(protocol) and (self.ca or self.cert):
            raise CommandError("ZeroMQ has no TLS: give CURVE keys (--login: curve_server=, curve_key=).", status=2)
        given, known = self.secrets, SECRETS.get(protocol, {})
        for name in given:
            if name not in known:
                there = f"it is one of {', '.join(known)}" if known else f"{protocol} has no login"
                raise CommandError(f"--login {self.login_file}: {name}: {there}.", status=2)
            for needed in known[name]:
                if needed not in given:
                    raise CommandError(f"--login {self.login_file}: {name} needs {needed}.", status=2)

    def context(self, authority: str = "") -> ssl.SSLContext | None:
        """Return how to speak TLS; None: plain. `authority`: trusted if the user names none. Raises `CommandError`."""
        if not (self.ca or self.cert or authority):
            return None
        ca = self.ca or authority
        try:
            context = ssl.create_default_context(cafile=None if ca in ("", SYSTEM) else ca)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"--ca {ca}: {getattr(error, 'strerror', None) or error}.", status=2) from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, password="")  # an encrypted key must not ask for its password
            except (OSError, ssl.SSLError) as error:
                why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
                raise CommandError(f"--cert {self.cert}: {str(why).lower().replace('_', ' ')}.", status=2) from error
        return context

    @cached_property
    def secrets(self) -> Mapping[str, str]:
        """By name; read once, since the file may be a pipe. Raises `CommandError` if it cannot be read, or a line is none."""
        if self.login_file is None:
            return {}
        text = _read("--login", self.login_file)
        found = {}
        for line in filter(None, map(str.rstrip, text.splitlines())):
            name, equals, value = line.partition("=")
            if not (equals and value):
                raise CommandError(f"--login {self.login_file}: expected lines of NAME=VALUE.", status=2)
            found[name.strip()] = value
        return found

    def login(self) -> Login | None:
        """Return Forward's login; None without a shared key. Raises `CommandError`."""
        given = self.secrets
        return Login(**given) if "shared_key" in given else None

    def curve(self, stack: str = "") -> CurveLogin | None:
        """Return Logjam's keys; None: plain. `stack`: the folder with a stack's, if the user names none. Raises
        `CommandError`.
        """
        given = self.secrets
        if "curve_key" in given:
            server, own = given["curve_server"], given["curve_key"]
        elif stack:
            keys = CurveKeys(Path(stack))
            server, own = (_read("--state", path).strip() for path in (keys.server[0], keys.client[1]))
        else:
            return None
        try:
            found = CurveLogin(server.encode(), zmq.curve_public(own.encode()), own.encode())
            z85.decode(found.server)
            sound = len(found.server) == len(found.public)
        except (ValueError, KeyError, zmq.ZMQError):
            sound = False
        if not sound:
            where = self.login_file or stack
            raise CommandError(f"{where}: one of its keys is no CURVE key, 40 characters of Z85.", status=2)
        return found


def _read(option: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{option} {path}: {getattr(error, 'strerror', None) or 'no text'}.", status=2) from error


def over_zeromq(protocol: str) -> bool:
    """Return whether clients of a protocol speak over ZeroMQ, with CURVE in place of TLS."""
    return any(each.curve for each in installed() if each.name == protocol)


def client_of(protocol: str) -> type[Client]:
    """Return the client of a protocol. Raises `CommandError` with status 2 if the protocol is unknown."""
    check_known("protocol", [protocol], sorted(CLIENTS))
    return CLIENTS[protocol]


def compression_of(text: str, protocol: str) -> Compression | None:
    """Read ``METHOD`` or ``METHOD:LEVEL``; None for an empty text. Raises `CommandError` with status 2."""
    if not text:
        return None
    methods = client_of(protocol).methods
    method, colon, level = text.partition(":")
    if not methods:
        raise CommandError(f"--compression {text}: {protocol} compresses nothing.", status=2)
    check_known(f"--compression: {protocol}'s method", [method], methods)
    if not colon:
        return Compression(method)
    levels = methods[method]
    if not levels:
        raise CommandError(f"--compression {text}: {method} has no levels in {protocol}.", status=2)
    if not level.isdecimal() or int(level) not in levels:
        raise CommandError(f"--compression {text}: the level is {levels.start} to {levels.stop - 1}.", status=2)
    return Compression(method, int(level))
