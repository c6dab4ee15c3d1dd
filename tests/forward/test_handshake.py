"""HELO, PING, PONG: who may send, and what they are told otherwise."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgpack
import pytest
from headrace_common.operations.errors import ConfigError, ProtocolError
from headrace_common.operations.settings import load
from headrace_common.session.interface import Peer
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection, ForwardSettings
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.driving import Seen
from tests.forward.driving import NOW_MS, PEER, message, pack, parts_of, session
from tests.tiers import examples

KEY = "open sesame ü"
RAW_SALT = bytes.fromhex("10a2b6549b5a93e519d6b2972997b5fe")
"""Of a real Fluent Bit: no UTF-8."""

SECURED: dict[str, Any] = {"shared_key": KEY}
WITH_USERS: dict[str, Any] = {**SECURED, "users": {"alice": "wonder", "bob": "builder"}}
GOOD = message(pack({"m": 1}))
JSON = b'["t",1700000000,{"m":1},{"chunk":"c"}]'


def digest(*parts: bytes) -> str:
    return hashlib.sha512(b"".join(parts)).hexdigest()


class Client:
    """One connection, from the client's side."""

    def __init__(self, peer: Peer = PEER, **own: Any) -> None:
        self.session = session(peer, **own)
        word, self.option = msgpack.unpackb(self.session.outgoing())
        assert word == "HELO"
        assert self.session.outgoing() == b""
        self.error: ProtocolError | None = None

    def ping(
        self, key: str = KEY, hostname: str = "web-1", salt: bytes = RAW_SALT, user: str = "", password: str = ""
    ) -> bytes:
        """The salt as a msgpack str, like Fluent Bit."""
        own = digest(self.option["auth"], user.encode(), password.encode())
        proof = digest(salt, hostname.encode(), self.option["nonce"], key.encode())
        return pack(["PING", hostname, salt.decode("utf-8", "surrogateescape"), proof, user, own])

    def send(self, data: bytes) -> bytes:
        """What the server says to `data`."""
        try:
            self.session.receive(data, NOW_MS)
        except ProtocolError as error:
            self.error = error
        return self.session.outgoing()

    def refused(self, data: bytes) -> bytes:
        """What the server says; the connection is closed and nothing came of it."""
        said = self.send(data)
        assert self.error is not None
        assert self.error.sample == b""
        assert list(self.session.frames()) == []
        return said


def test_helo() -> None:
    """What is hashed is new on each connection."""
    option, again = (Client(**WITH_USERS).option for _ in range(2))
    assert option.keys() == {"nonce", "auth", "keepalive"}
    assert option["keepalive"] is True
    assert all(again[name] != option[name] for name in ("nonce", "auth"))


ALICE: dict[str, Any] = {"user": "alice", "password": "wonder"}
FORGED, UNKNOWN = "shared_key mismatch", "username/password mismatch"
LOGINS: list[tuple[str, dict[str, Any], tuple[bytes, bytes], str]] = [
    ("nothing", {}, (b"", b""), ""),
    ("nothing: a long name", {"hostname": "n" * 255}, (b"", b""), ""),
    ("its name is too long to be kept", {"hostname": "n" * 256}, (b"", b""), ""),
    ("it has no name", {"hostname": ""}, (b"", b""), ""),
    ("the key", {"key": KEY[1:]}, (b"", b""), FORGED),
    ("the nonce", {}, (b"", b""), FORGED),
    ("the salt", {}, (RAW_SALT, RAW_SALT[::-1]), FORGED),
    ("the name", {}, (b"web-1", b"web-2"), FORGED),
    ("the user", {"user": "eve", "password": ""}, (b"", b""), UNKNOWN),
    ("the password", {"password": "builder"}, (b"", b""), UNKNOWN),
    ("the auth salt", {}, (b"", b""), UNKNOWN),
]
"""What is wrong with a login, what is given, what is then another in the PING, and the refusal."""


def judge_login(
    wrong: str, given: dict[str, str], changed: tuple[bytes, bytes], refusal: str, users: bool = True
) -> None:
    """Raises AssertionError where the answer is not what the specification says (Forward Protocol v1, Handshake Messages)."""
    client = Client(**WITH_USERS if users else SECURED)
    nonce = client.option["nonce"]
    client.option |= {"the nonce": {"nonce": b"x" * 16}, "the auth salt": {"auth": b"x" * 16}}.get(wrong, {})
    refusal = refusal if users or refusal == FORGED else ""
    name = given.get("hostname", "web-1")
    ping = client.ping(**ALICE | given).replace(*changed, 1)
    said = msgpack.unpackb(client.send(ping[:9]) + client.send(ping[9:] + GOOD))
    digested = digest(RAW_SALT, b"headrace-forward", nonce, KEY.encode())
    assert said == ["PONG", not refusal, *([refusal, "", ""] if refusal else ["", "headrace-forward", digested])]
    sources = [part.source for frame in client.session.frames() for part in parts_of(frame) if isinstance(part, Seen)]
    shown = name if 0 < len(name) <= 255 else PEER.address
    assert sources == ([] if refusal else [f"/forward/{shown}"])


@pytest.mark.parametrize("users", [True, False], ids=["users", "a key alone"])
@pytest.mark.parametrize("login", LOGINS, ids=[login[0] for login in LOGINS])
def test_a_login_is_right_or_refused(login: tuple[str, dict[str, Any], tuple[bytes, bytes], str], users: bool) -> None:
    judge_login(*login, users)


def name_of(driven: ForwardSession) -> bytes:
    """The id of the one event that has come."""
    (frame,) = driven.frames()
    (event,) = parts_of(frame)
    assert isinstance(event, Seen)
    return event.headers["ce_id"]


def test_the_name_of_the_client_is_part_of_the_ids() -> None:
    """Two hosts whose chunks are equal byte for byte are two hosts: by their login, and before that by their certificate."""

    def sent_by(hostname: str, peer: Peer = PEER) -> bytes:
        client = Client(peer, **SECURED)
        client.send(client.ping(hostname=hostname) + GOOD)
        return name_of(client.session)

    def certified(identity: str, data: bytes) -> bytes:
        driven = session(Peer("192.0.2.7", 1, identity, certified=True))
        driven.receive(data, NOW_MS)
        return name_of(driven)

    assert sent_by("web-1") == sent_by("web-1", Peer("203.0.113.4", 5, "203.0.113.4"))
    assert sent_by("web-1") != sent_by("web-2")
    peer = Peer("192.0.2.7", 1, "edge", certified=True)
    assert sent_by("web-1", peer) == sent_by("web-2", peer) == certified("edge", GOOD) != sent_by("web-1")
    for data in (GOOD, JSON):
        assert len({certified(identity, data) for identity in ("a", "b", "192.0.2.7")}) == 3


@pytest.mark.parametrize(
    "data",
    [
        pack(["PING", "h", "s", "d", "u", "p", "x"]),
        pack(["PING", "h", "s", "d", "u", 1]),
        pack(["PING", {}, "s", "d", "u", ""]),
        b"\x96" + b"\xc7\x05\xff12345" * 6,
        GOOD,
    ],
    ids=lambda data: repr(data[:16]),
)
def test_what_is_no_ping(data: bytes) -> None:
    assert Client(**SECURED).refused(data) == pack(["PONG", False, "invalid ping message", "", ""])


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xc1", JSON, b'["PING","h","s","d","u","p"]'])
def test_what_is_no_message_is_not_answered(data: bytes) -> None:
    assert Client(**SECURED).refused(data) == b""


def test_a_login_has_its_size() -> None:
    client = Client(**SECURED)
    assert client.refused(b"\x96\xa4PING\xc5\xff\xff" + bytes(4096)) == b""
    assert client.error is not None
    assert client.error.limit == "FORWARD__HANDSHAKE_BYTES"
    at_limit = Client(**SECURED, handshake_bytes=1024)
    data = at_limit.ping()
    name = "h" * (1024 - len(data) + 3)
    data = at_limit.ping(hostname=name)
    assert len(data) == 1024
    assert msgpack.unpackb(at_limit.send(data))[1]


def test_a_login_has_its_time() -> None:
    client = Client(**SECURED)
    driven = client.session
    assert driven.deadline() == 0.0  # at once, to learn what time it is
    driven.tick(1000.0)
    assert driven.deadline() == 1010.0
    driven.tick(1009.9)
    with pytest.raises(ProtocolError) as caught:
        driven.tick(1010.0)
    assert caught.value.limit == "LIMITS__HANDSHAKE_TIME"
    quick = Client(**SECURED)
    quick.session.tick(1000.0)
    quick.send(quick.ping())
    assert quick.session.deadline() is None
    quick.session.tick(2000.0)


def test_a_client_that_says_nothing_is_a_heartbeat() -> None:
    Client(**SECURED).session.eof()
    client = Client(**SECURED)
    client.send(client.ping()[:20])
    with pytest.raises(ProtocolError):
        client.session.eof()


@given(st.binary(max_size=120), st.integers(1, 40))
@settings(max_examples=examples(2000))
def test_nothing_gets_past_the_login(noise: bytes, step: int) -> None:
    client = Client(**SECURED)
    driven, data = client.session, noise + client.ping("guess") + GOOD
    try:
        for at in range(0, len(data), step):
            driven.receive(data[at : at + step], NOW_MS)
    except ProtocolError:
        pass
    assert list(driven.frames()) == []
    said = driven.outgoing()
    assert said == b"" or not msgpack.unpackb(said)[1]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an empty key": ({"shared_key": ""}, "SHARED_KEY is empty"),
    "users without a key": ({"users": {"a": "b"}}, "FORWARD__USERS needs FORWARD__SHARED_KEY"),
    "a user without a password": ({"shared_key": "k", "users": {"a": ""}}, "no name or no password"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_make_no_sense(name: str) -> None:
    values, says = REFUSED[name]
    with pytest.raises(ValidationError, match=says):
        ForwardSection(**values)


def test_settings_from_the_environment_and_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text('{"Alice": "pass word"}\n')
    monkeypatch.setenv("HEADRACE_FORWARD__SHARED_KEY", KEY)
    monkeypatch.setenv("HEADRACE_FORWARD__USERS_FILE", str(users))
    forward = load(ForwardSettings).forward
    assert forward.users["Alice"].get_secret_value() == "pass word"
    assert KEY not in repr(forward)
    assert "pass word" not in repr(forward)
    users.write_text("Alice:pass word")
    with pytest.raises(ConfigError, match=r"^HEADRACE_FORWARD__USERS: Input should be a valid dictionary$"):
        load(ForwardSettings)
