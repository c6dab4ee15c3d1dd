"""Who may come in: Forward's handshake by its specification, and Segment's rights and tokens."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from hashlib import sha512
from typing import Any, Final

import msgpack

from tests.fuzz.shape import Shape
from tests.fuzz.truth import ADDRESS

KEY: Final = "key ü"
USERS: Final = {"alice": "wonder", "bob": "ü"}
HOSTS: Final = ("web-1", "é", "", "headrace-forward", "n" * 255, "n" * 256)


def settings(s: Shape) -> dict[str, Any]:
    """Settings of Forward."""
    return {"shared_key": KEY, "users": USERS if s.perhaps(0.6) else {}}


def digest(*parts: bytes) -> str:
    return sha512(b"".join(parts)).hexdigest()


def login(s: Shape, given: dict[str, Any], helo: bytes) -> tuple[bytes, list[Any], str]:
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


RIGHTS: Final = ("read", "append", "create", "destroy")


def token(claims: dict[str, Any], key: bytes, kind: str = "HS512") -> str:
    """A JWT."""
    signed = b".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": kind}, claims))
    signature = hmac.digest(key, signed, f"sha{kind[2:]}")
    return (signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def right(s: Shape, now: int) -> tuple[dict[str, Any], bytes, tuple[str, bool], str, str, str, str]:
    """Rights by the settings, the key, a client (its name, and whether that is certified), a right, a segment, a token; and
    whether the client may: "yes", "no" or "expired".
    """
    rights = {who: s.sample(RIGHTS, s.randrange(4)) for who in s.sample(("*", "CN=a", "192.0.2.7"), s.randrange(4))}
    key = s.choice((b"", b"secret"))
    peer = s.choice((("CN=a", True), ("CN=b", True), ("192.0.2.7", False), ("127.0.0.1", False), ("::1", False)))
    wanted, segment = s.choice(RIGHTS), s.choice(("s/t/0", "s/tt/0", "x"))
    resource = s.choice(("*", "prn::/scope:s/stream:t", "prn::/scope:s", "s/t/0", "prn::/scope:x", "s/t"))
    permission, until = s.choice(("READ", "READ_UPDATE", "NONE")), s.choice((None, now - 1, now, now + 1))
    signed = s.choice((b"secret", b"secret", b"secret", b"other"))
    claims = {resource: permission} | ({} if until is None else {"exp": until})
    text = s.choice((token(claims, signed, s.choice(("HS256", "HS384", "HS512"))), ""))
    held = {*rights.get("*", ()), *(rights.get(peer[0], ()) if peer[1] else ())}
    if not rights and not key:
        held = {*RIGHTS} if peer[0] in ("127.0.0.1", "::1") else {*RIGHTS[:3]}
    about = resource.replace("prn::", "").replace("/scope:", "").replace("stream:", "")
    gives = permission == "READ_UPDATE" or (permission == "READ" and wanted == "read")
    gives = gives and (about == "*" or segment == about or segment.startswith(about + "/"))
    verdict = "no"
    if wanted in held:
        verdict = "yes"
    elif key and text and signed == key and gives:
        verdict = "yes" if until is None or now < until else "expired"
    return rights, key, peer, wanted, segment, text, verdict
