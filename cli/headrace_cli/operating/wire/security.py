"""How a tool proves who it is, and whom it trusts: TLS, Forward's login, ZeroMQ's CURVE."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from headrace_cli.errors import CommandError
from headrace_cli.stack.curve import CurveKeys

SECRET_BYTES: Final = 64 << 10
"""Most bytes of a file with a key or a password."""


@dataclass(frozen=True)
class Login:
    """Forward's handshake: the shared key, and a user with a password if the server asks for one."""

    shared_key: str
    user: str = ""
    password: str = ""


@dataclass(frozen=True)
class Curve:
    """ZeroMQ's CURVE, each key in Z85: the server's public one, and our own pair."""

    server: bytes
    public: bytes
    secret: bytes


@dataclass(frozen=True)
class Security:
    """What the user says. Secrets are in files, the first line of each, so that no list of processes shows them.

    `tls`: speak it; `ca` and `cert`, with `key`, speak it too. `shared_key`, `password`: files, of Forward. `curve_server` (the
    server's public key) and `curve_key` (our secret one): files, of Logjam.
    """

    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    shared_key: Path | None = None
    user: str = ""
    password: Path | None = None
    curve_server: Path | None = None
    curve_key: Path | None = None

    def check(self, protocol: str) -> None:
        """Raise `CommandError` for what this protocol does not have, and for half of a pair."""
        for option, given, owner in (
            ("--shared-key-file", self.shared_key, "forward"),
            ("--user", self.user, "forward"),
            ("--password-file", self.password, "forward"),
            ("--curve-server-file", self.curve_server, "logjam"),
            ("--curve-key-file", self.curve_key, "logjam"),
        ):
            if given and protocol != owner:
                raise CommandError(f"{option}: only {owner} has it.", status=2)
        if protocol == "logjam" and self.speaks_tls:
            raise CommandError("ZeroMQ has no TLS: name CURVE keys (--curve-server-file, --curve-key-file).", status=2)
        for option, given, needed, other in (
            ("--key", self.key, self.cert, "--cert"),
            ("--user", self.user, self.password, "--password-file"),
            ("--password-file", self.password, self.user, "--user"),
            ("--user", self.user, self.shared_key, "--shared-key-file"),
            ("--curve-server-file", self.curve_server, self.curve_key, "--curve-key-file"),
            ("--curve-key-file", self.curve_key, self.curve_server, "--curve-server-file"),
        ):
            if given and not needed:
                raise CommandError(f"{option} needs {other}.", status=2)

    @property
    def speaks_tls(self) -> bool:
        """Whether any option of TLS is given."""
        return self.tls or self.ca is not None or self.cert is not None or self.key is not None

    def context(self, authority: str = "") -> ssl.SSLContext | None:
        """What to speak TLS with; None: plain. `authority`: trusted if the user names none. Raises `CommandError`."""
        if not (self.speaks_tls or authority):
            return None
        ca = str(self.ca) if self.ca is not None else authority
        try:
            context = ssl.create_default_context(cafile=ca or None)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"--ca {ca}: {getattr(error, 'strerror', None) or error}.", status=2) from error
        if self.cert is not None:
            try:
                context.load_cert_chain(
                    self.cert, self.key, password=""
                )  # an encrypted key must not ask for its password
            except (OSError, ssl.SSLError) as error:
                why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
                raise CommandError(f"--cert {self.cert}: {str(why).lower().replace('_', ' ')}.", status=2) from error
        return context

    def login(self) -> Login | None:
        """Forward's login; None without a shared key. Raises `CommandError`."""
        if self.shared_key is None:
            return None
        password = "" if self.password is None else _read("--password-file", self.password)
        return Login(_read("--shared-key-file", self.shared_key), self.user, password)

    def curve(self, stack: str = "") -> Curve | None:
        """Logjam's keys; None: plain. `stack`: the folder with a stack's, if the user names none. Raises `CommandError`."""
        if self.curve_server is not None and self.curve_key is not None:
            server, secret = self.curve_server, self.curve_key
        elif stack:
            keys = CurveKeys(Path(stack))
            server, secret = keys.server[0], keys.client[1]
        else:
            return None
        own = _read("--curve-key-file", secret).encode()
        try:
            found = Curve(_read("--curve-server-file", server).encode(), zmq.curve_public(own), own)
            z85.decode(found.server)
            sound = len(found.server) == len(found.public)
        except (ValueError, KeyError, zmq.ZMQError):
            sound = False
        if not sound:
            raise CommandError(f"{server}, {secret}: one of them has no CURVE key, 40 characters of Z85.", status=2)
        return found


def _read(option: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(SECRET_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{option} {path}: {getattr(error, 'strerror', None) or 'no text'}.", status=2) from error
    line = text.strip("\r\n").partition("\n")[0].rstrip("\r")
    if not line:
        raise CommandError(f"{option} {path}: it is empty.", status=2)
    return line
