"""The handshake: HELO, PING, PONG. Who holds the shared key, and which user they are. Pure.

Facts: fluentd, in_forward.rb `check_ping` and `generate_pong`, from which the reasons are too; Fluent Bit's out_forward
sends its salt as a msgpack str of random bytes, so nothing here is decoded as text before it is hashed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import msgpack
from headrace_common.proxy import Network, within

NONCE_BYTES: Final = 16
PING: Final = b"PING"
INVALID: Final = "invalid ping message"
WRONG_KEY: Final = "shared_key mismatch"
WRONG_USER: Final = "username/password mismatch"


@dataclass(frozen=True, slots=True)
class ClientRule:
    """What holds for clients from `networks`: their key; the users that may log in from there, all if there are none named."""

    networks: tuple[Network, ...]
    shared_key: bytes
    users: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Security:
    """Who may send. The first of `rules` whose networks hold a client's address counts; for the others, `shared_key`.

    `shared_key` None: nobody else may send. With `users` (password by name) everyone must be one of them. `hostname` is
    what this server calls itself: a client that calls itself the same refuses it.
    """

    hostname: str
    shared_key: bytes | None
    users: Mapping[bytes, bytes] = field(default_factory=dict)
    rules: Sequence[ClientRule] = ()
    keepalive: bool = True


class Answer(NamedTuple):
    """The reply to a PING. `refusal` None: the client may send, and `hostname` is what it calls itself."""

    pong: bytes
    hostname: str
    refusal: str | None


class Handshake:
    """One client's. `nonce` and `auth` are 16 random bytes each."""

    def __init__(self, security: Security, address: str, nonce: bytes, auth: bytes) -> None:
        self._security = security
        self._address = address
        self._nonce = nonce
        self._auth = auth if security.users else b""

    def helo(self) -> bytes:
        """What the server says first."""
        return _pack(["HELO", {"nonce": self._nonce, "auth": self._auth, "keepalive": self._security.keepalive}])

    def answer(self, ping: bytes) -> Answer:
        """The reply to one complete msgpack object."""
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
        return Answer(_pack(["PONG", True, "", name, proof]), hostname.decode("utf-8", "replace"), None)

    def _is_user(self, name: bytes, digest: bytes, rule: ClientRule | None) -> bool:
        """The password is compared for unknown names too, so that time does not tell which names there are."""
        password = self._security.users.get(name)
        right = hmac.compare_digest(_digest(self._auth, name, password or b""), digest)
        allowed = rule is None or not rule.users or name in rule.users
        return right and password is not None and allowed

    def _refuse(self, reason: str) -> Answer:
        return Answer(_pack(["PONG", False, reason, "", ""]), "", reason)


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
    """The reply to a HELO. `raw_str`: the salt goes as a msgpack str, as Fluent Bit does, and not as bin.

    Raises ValueError when `helo` is none.
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
    said = ["PING", hostname, text if raw_str else salt, digest, user if auth else "", password_digest]
    return cast("bytes", msgpack.packb(said, unicode_errors="surrogateescape"))


class Verdict(NamedTuple):
    """What a PONG says. `proof` is to be compared with `proof_of` by a client that checks its server."""

    accepted: bool
    reason: str
    hostname: str
    proof: str


def read_pong(pong: bytes) -> Verdict:
    """Raises ValueError when it is none."""
    try:
        word, *rest = msgpack.unpackb(pong)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError("not a PONG") from error
    if word != "PONG" or len(rest) != 4:
        raise ValueError("not a PONG")
    return Verdict(*rest)


def proof_of(helo: bytes, shared_key: str, hostname: str, salt: bytes) -> str:
    """What the server `hostname` must send in its PONG to show that it holds the key too."""
    nonce = msgpack.unpackb(helo, raw=True)[1][b"nonce"]
    return _digest(salt, hostname.encode(), nonce, shared_key.encode()).decode()
