"""The handshake: HELO, PING, PONG. It proves that a client holds the shared key, and which user it is. Pure.

Source: fluentd, in_forward.rb `check_ping` and `generate_pong`, including the texts of refusals. Fluent Bit's out_forward
sends its salt as a msgpack str of random bytes, so nothing here is decoded as text before hashing.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple, cast

import msgpack
from pydantic import SecretStr

from headrace_forward.settings import ForwardSection

NONCE_BYTES: Final = 16
PING: Final = b"PING"
INVALID: Final = "invalid ping message"
WRONG_KEY: Final = "shared_key mismatch"
WRONG_USER: Final = "username/password mismatch"


class LoginAnswer(NamedTuple):
    """The reply to a PING. `refusal` None: the client may send. `hostname`: the client's name for itself."""

    pong: bytes
    hostname: str
    refusal: str | None


class Handshake:
    """One client's handshake: it must hold `key`, and log in if the settings name users. `nonce` and `auth` are 16 random bytes
    each. A client with the name of this server refuses it.
    """

    def __init__(self, key: SecretStr, forward: ForwardSection, nonce: bytes, auth: bytes) -> None:
        self._key = key.get_secret_value().encode()
        self._users = forward.users
        self._name = forward.server_hostname
        self._nonce = nonce
        self._auth = auth if forward.users else b""

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
        if not hmac.compare_digest(_digest(salt, hostname, self._nonce, self._key), digest):
            return self._refuse(WRONG_KEY)
        if self._users and not self._is_user(user, password_digest):
            return self._refuse(WRONG_USER)
        proof = _digest(salt, self._name.encode(), self._nonce, self._key).decode()
        return LoginAnswer(_pack(["PONG", True, "", self._name, proof]), hostname.decode("utf-8", "replace"), None)

    def _is_user(self, name: bytes, digest: bytes) -> bool:
        """Checks the password for unknown names too, so that the response time does not reveal which names exist."""
        password = self._users.get(name.decode("utf-8", "surrogateescape"))
        known = b"" if password is None else password.get_secret_value().encode()
        right = hmac.compare_digest(_digest(self._auth, name, known), digest)
        return right and password is not None

    def _refuse(self, reason: str) -> LoginAnswer:
        return LoginAnswer(_pack(["PONG", False, reason, "", ""]), "", reason)


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha512(b"".join(parts)).hexdigest().encode()


def _pack(value: object) -> bytes:
    return cast("bytes", msgpack.packb(value))
