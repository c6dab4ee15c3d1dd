"""Who may come in: Forward's handshake by its specification."""

from __future__ import annotations

from hashlib import sha512
from typing import Any, Final

import msgpack

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS

KEY: Final = "key ü"
USERS: Final = {"alice": "wonder", "bob": "ü"}
HOSTS: Final = ("web-1", "é", "", "headrace-forward", "n" * 255, "n" * 256)


def settings(s: Chance) -> dict[str, Any]:
    """Settings of Forward."""
    return {"shared_key": KEY, "users": USERS if s.perhaps(0.6) else {}}


def digest(*parts: bytes) -> str:
    return sha512(b"".join(parts)).hexdigest()


def login(s: Chance, given: dict[str, Any], helo: bytes) -> tuple[bytes, list[Any], str]:
    """A PING, the PONG that must come, and the client's name; "": it is refused."""
    word, option = msgpack.unpackb(helo, raw=True)
    nonce, auth = option[b"nonce"], option[b"auth"]
    assert (word, len(nonce), len(auth)) == (b"HELO", 16, 16 if given["users"] else 0)
    key = KEY.encode()
    host, salt, user = s.choice(HOSTS).encode(), s.randbytes(16), s.choice(("alice", "bob", "bob", "eve", ""))
    wrong = s.choice((*"_____", "key", "nonce", "salt", "host", "password", "auth", "cut", "word"))
    proof = digest(
        salt[wrong == "salt" :],
        host + b"x" * (wrong == "host"),
        nonce[wrong == "nonce" :],
        key[wrong == "key" :],
    )
    password = USERS.get(user, "").encode()[wrong == "password" :]
    own = digest(auth[wrong == "auth" :], user.encode(), password)
    parts = ["PING"[wrong == "word" :], host.decode(), salt, proof, user, own]
    ping = msgpack.packb(parts[: 5 if wrong == "cut" else 6])
    refusal = ""
    if wrong in ("cut", "word"):
        refusal = "invalid ping message"
    elif wrong in ("key", "nonce", "salt", "host"):
        refusal = "shared_key mismatch"
    elif given["users"] and (wrong in ("password", "auth") or user not in USERS):
        refusal = "username/password mismatch"
    if refusal:
        return ping, ["PONG", False, refusal, "", ""], ""
    name = host.decode() if 0 < len(host) <= 255 else ADDRESS
    return ping, ["PONG", True, "", "headrace-forward", digest(salt, b"headrace-forward", nonce, key)], name
