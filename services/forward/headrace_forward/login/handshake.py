"""The handshake: HELO, PING, PONG. It proves that a client holds the shared key, and which user it is. Pure.

Source: fluentd, in_forward.rb `check_ping` and `generate_pong`, including the texts of refusals. Fluent Bit's out_forward
sends its salt as a msgpack str of random bytes, so nothing here is decoded as text before hashing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import msgpack
from headrace_common.operations.networks import Network, within

NONCE_BYTES: Final = 16
PING: Final = b"PING"
INVALID: Final = "invalid ping message"
WRONG_KEY: Final = "shared_key mismatch"
WRONG_USER: Final = "username/password mismatch"


@dataclass(frozen=True, slots=True)
class ClientRule:
    """A rule for clients from `networks`: their key, and the users that may log in from there; all if none are named."""

    networks: tuple[Network, ...]
    shared_key: bytes
    users: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The rules for all clients. The first of `rules` whose networks contain a client's address applies, else `shared_key`.

    `shared_key` None: no other client may send. With `users` (password by name), every client must log in as one of them.
    `hostname`: this server's name; a client with the same name refuses it.
    """

    hostname: str
    shared_key: bytes | None
    users: Mapping[bytes, bytes] = field(default_factory=dict)
    rules: Sequence[ClientRule] = ()


class LoginAnswer(NamedTuple):
    """The reply to a PING. `refusal` None: the client may send. `hostname`: the client's name for itself."""

    pong: bytes
    hostname: str
    refusal: str | None


class Handshake:
    """One client's handshake. `nonce` and `auth` are 16 random bytes each."""

    def __init__(self, security: LoginRules, address: str, nonce: bytes, auth: bytes) -> None:
        self._security = security
        self._address = address
        self._nonce = nonce
        self._auth = auth if security.users else b""

    def helo(self) -> bytes:
        """Returns the server's first message."""
        return _pack(["HELO", {"nonce": self._nonce, "auth": self._auth, "keepalive": True}])

    def answer(self, ping: bytes) -> LoginAnswer:
        """Returns the reply to the client's PING, one complete msgpack object."""
        try:
            message = msgpack.unpackb(ping, raw=True, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException):
            return self._refuse(INVALID)
        if type(message) is not list or len(message) != 6 or {bytes} != set(map(type, message)) or message[0] != PING:
            return self._refuse(INVALID)
        _, hostname, salt, digest, user, password_digest = cast("list[bytes]", message)
        rule = next((rule for rule in self._security.rules if within(self._address, rule.networks)), None)
        key = self._security.shared_key if rule is None else rule.shared_key
        if key is None:
            return self._refuse(f"anonymous source host '{self._address}' denied")
        if not hmac.compare_digest(_digest(salt, hostname, self._nonce, key), digest):
            return self._refuse(WRONG_KEY)
        if self._security.users and not self._is_user(user, password_digest, rule):
            return self._refuse(WRONG_USER)
        name = self._security.hostname
        proof = _digest(salt, name.encode(), self._nonce, key).decode()
        return LoginAnswer(_pack(["PONG", True, "", name, proof]), hostname.decode("utf-8", "replace"), None)

    def _is_user(self, name: bytes, digest: bytes, rule: ClientRule | None) -> bool:
        """Checks the password for unknown names too, so that the response time does not reveal which names exist."""
        password = self._security.users.get(name)
        right = hmac.compare_digest(_digest(self._auth, name, password or b""), digest)
        allowed = rule is None or not rule.users or name in rule.users
        return right and password is not None and allowed

    def _refuse(self, reason: str) -> LoginAnswer:
        return LoginAnswer(_pack(["PONG", False, reason, "", ""]), "", reason)


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha512(b"".join(parts)).hexdigest().encode()


def _pack(value: object) -> bytes:
    return cast("bytes", msgpack.packb(value))


# The client's side, for the command line and the tests


def ping(
    helo: bytes,
    shared_key: str,
    *,
    hostname: str,
    salt: bytes,
    user: str = "",
    password: str = "",
    raw_str: bool = False,
) -> bytes:
    """Returns the reply to a HELO. `raw_str`: sends the salt as a msgpack str, like Fluent Bit, not as bin.

    Raises ValueError if `helo` is not a HELO.
    """
    try:
        word, option = cast("list[Any]", msgpack.unpackb(helo, raw=True))
        nonce, auth = option[b"nonce"], option[b"auth"]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise ValueError("not a HELO") from error
    if word != b"HELO":
        raise ValueError("not a HELO")
    digest = _digest(salt, hostname.encode(), nonce, shared_key.encode()).decode()
    password_digest = _digest(auth, user.encode(), password.encode()).decode() if auth else ""
    text = salt.decode("utf-8", "surrogateescape")
    message = ["PING", hostname, text if raw_str else salt, digest, user if auth else "", password_digest]
    return cast("bytes", msgpack.packb(message, unicode_errors="surrogateescape"))


class Pong(NamedTuple):
    """The content of a PONG. A client that checks its server compares `proof` with `proof_of`."""

    accepted: bool
    reason: str
    hostname: str
    proof: str


def read_pong(pong: bytes) -> Pong:
    """Reads a PONG. Raises ValueError if it is not one."""
    try:
        word, *rest = msgpack.unpackb(pong)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError("not a PONG") from error
    if word != "PONG" or len(rest) != 4:
        raise ValueError("not a PONG")
    return Pong(*rest)


def proof_of(helo: bytes, shared_key: str, hostname: str, salt: bytes) -> str:
    """Returns the proof in the PONG of the server `hostname` that it holds the key too."""
    nonce = msgpack.unpackb(helo, raw=True)[1][b"nonce"]
    return _digest(salt, hostname.encode(), nonce, shared_key.encode()).decode()
