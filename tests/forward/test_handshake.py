"""HELO, PING, PONG: who may send, and what they are told otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgpack
import pytest
from headrace_common.operations.errors import ConfigError, ProtocolError
from headrace_common.operations.settings import load
from headrace_common.session.interface import Peer
from headrace_forward.login.access import security
from headrace_forward.login.handshake import ping, proof_of, read_pong
from headrace_forward.settings import ForwardSection, ForwardSettings
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.driving import Seen
from tests.forward.driving import NOW_MS, PEER, ack, message, pack, parts_of, session
from tests.tiers import examples

KEY = "open sesame ü"
RAW_SALT = bytes.fromhex("10a2b6549b5a93e519d6b2972997b5fe")
"""Of a real Fluent Bit: no UTF-8."""

SECURED: dict[str, Any] = {"shared_key": KEY}
WITH_USERS: dict[str, Any] = {**SECURED, "users": {"alice": "wonder", "bob": "builder"}}
GOOD = message(pack({"m": 1}))


class Client:
    """One connection, from the client's side."""

    def __init__(self, peer: Peer = PEER, **own: Any) -> None:
        self.session = session(peer, **own)
        self.helo = self.session.outgoing()
        assert self.session.outgoing() == b""
        self.error: ProtocolError | None = None

    def ping(self, key: str = KEY, **more: Any) -> bytes:
        return ping(self.helo, key, **{"hostname": "web-1", "salt": RAW_SALT, "raw_str": True, **more})

    def send(self, data: bytes) -> bytes:
        """What the server says to `data`."""
        try:
            self.session.receive(data, NOW_MS)
        except ProtocolError as error:
            self.error = error
        return self.session.outgoing()

    def refused(self, data: bytes) -> str:
        """The reason in the PONG; the connection is closed and nothing came of it."""
        accepted, reason, hostname, proof = read_pong(self.send(data))
        assert (accepted, hostname, proof) == (False, "", "")
        assert self.error is not None
        assert self.error.sample == b""
        assert list(self.session.frames()) == []
        return reason


def test_helo() -> None:
    client = Client(**WITH_USERS)
    word, option = msgpack.unpackb(client.helo)
    assert word == "HELO"
    assert option.keys() == {"nonce", "auth", "keepalive"}
    assert [type(option[name]) for name in ("nonce", "auth")] == [bytes, bytes]
    assert [len(option[name]) for name in ("nonce", "auth")] == [16, 16]
    assert option["keepalive"] is True
    assert Client(**WITH_USERS).helo != client.helo
    assert msgpack.unpackb(Client(**SECURED).helo)[1]["auth"] == b""


@pytest.mark.parametrize("raw_str", [True, False])
@pytest.mark.parametrize("salt", [RAW_SALT, b"0123456789abcdef0123456789abcdef", b""])
def test_whoever_knows_the_key_may_send(salt: bytes, raw_str: bool) -> None:
    client = Client(**SECURED)
    accepted, reason, hostname, proof = read_pong(client.send(client.ping(salt=salt, raw_str=raw_str)))
    assert (accepted, reason, hostname) == (True, "", "headrace-forward")
    assert proof == proof_of(client.helo, KEY, hostname, salt)
    assert client.send(GOOD) == b""
    (frame,) = client.session.frames()
    (event,) = parts_of(frame)
    assert isinstance(event, Seen)
    assert event.headers["ce_source"] == b"/forward/web-1"
    client.session.stored(frame.ticket, 1, True)
    assert client.session.outgoing() == ack("c")


@pytest.mark.parametrize(
    ("peer", "hostname", "source"),
    [
        (PEER, "web-1", "web-1"),
        (dataclasses.replace(PEER, identity="from the certificate"), "web-1", "from the certificate"),
        (Peer(PEER.address, 1, PEER.address, certified=True), "web-1", "192.0.2.7"),
        # 4 KiB of name in each of some thousand tiny records would be 18 MB.
        *((PEER, name, name) for name in ("h" * 255, "ü" * 127)),
        *((PEER, name, "192.0.2.7") for name in ("h" * 256, "ü" * 127 + "xx")),
    ],
)
def test_a_client_is_called_by_its_certificate_else_by_its_own_word(peer: Peer, hostname: str, source: str) -> None:
    client = Client(peer, **SECURED)
    client.send(client.ping(hostname=hostname) + GOOD)
    (frame,) = client.session.frames()
    assert parts_of(frame)[0].source == f"/forward/{quote(source)}"


def test_the_name_of_the_login_is_part_of_the_ids() -> None:
    """Two hosts whose chunks are equal byte for byte are two hosts."""

    def sent_by(hostname: str, peer: Peer = PEER) -> bytes:
        client = Client(peer, **SECURED)
        client.send(client.ping(hostname=hostname) + GOOD)
        (frame,) = client.session.frames()
        (event,) = parts_of(frame)
        assert isinstance(event, Seen)
        return event.headers["ce_id"]

    assert sent_by("web-1") == sent_by("web-1", Peer("203.0.113.4", 5, "203.0.113.4"))
    assert sent_by("web-1") != sent_by("web-2")
    certified = Peer("192.0.2.7", 1, "edge", certified=True)
    assert sent_by("web-1", certified) == sent_by("web-2", certified) != sent_by("web-1")


def test_users() -> None:
    for user, password, ok in (
        ("alice", "wonder", True),
        ("bob", "builder", True),
        ("alice", "builder", False),
        ("carol", "", False),
        ("", "", False),
    ):
        client = Client(**WITH_USERS)
        data = client.ping(user=user, password=password)
        if ok:
            assert read_pong(client.send(data)).accepted
        else:
            assert client.refused(data) == "username/password mismatch"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xc0",
        b"\xc1",
        pack(["PING"]),
        pack(["PING", "h", "s", "d", "u"]),
        pack(["PING", "h", "s", "d", "u", "p", "x"]),
        pack(["PONG", "h", "s", "d", "u", "p"]),
        pack(["PING", "h", "s", "d", "u", 1]),
        pack(["PING", "h", "s", ["d"], "u", ""]),
        pack(["PING", {}, "s", "d", "u", ""]),
        b"\x96" + b"\xc7\x05\xff12345" * 6,
        GOOD,
        b'["PING","h","s","d","u","p"]',
    ],
    ids=lambda data: repr(data[:16]),
)
def test_what_is_no_ping(data: bytes) -> None:
    assert Client(**SECURED).refused(data) == "invalid ping message"


def test_a_login_has_its_size() -> None:
    client = Client(**SECURED)
    start = b"\x96\xa4PING\xc5\xff\xff"
    assert client.send(start + bytes(4096 - len(start) - 1)) == b""
    assert client.error is None
    client.send(b"\0")
    assert client.error is not None
    assert client.error.limit == "FORWARD__HANDSHAKE_BYTES"
    at_limit = Client(**SECURED, handshake_bytes=1024)
    data = at_limit.ping()
    name = "h" * (1024 - len(data) + 3)
    data = at_limit.ping(hostname=name)
    assert len(data) == 1024
    assert read_pong(at_limit.send(data)).accepted


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


def test_after_the_login_offsets_count_from_the_connections_start() -> None:
    client = Client(**SECURED)
    login = client.ping()
    client.send(login + GOOD + b"\x05")
    assert client.error is not None
    assert client.error.offset == len(login) + len(GOOD)


@given(st.binary(max_size=120), st.integers(1, 40))
@settings(max_examples=examples(2000))
def test_nothing_gets_past_the_login(noise: bytes, step: int) -> None:
    driven = session(**SECURED)
    helo = driven.outgoing()
    data = noise + ping(helo, "guess", hostname="h", salt=b"s") + GOOD
    try:
        for at in range(0, len(data), step):
            driven.receive(data[at : at + step], NOW_MS)
    except ProtocolError:
        pass
    assert list(driven.frames()) == []
    said = driven.outgoing()
    assert said == b"" or not read_pong(said).accepted


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an empty key": ({"shared_key": ""}, "SHARED_KEY is empty"),
    "users without a key": ({"users": {"a": "b"}}, "FORWARD__USERS needs FORWARD__SHARED_KEY"),
    "a user without a password": ({"shared_key": "k", "users": {"a": ""}}, "no name or no password"),
    "a client without a key": ({"clients": [{"host": "10.0.0.1"}]}, "has no shared_key"),
    "a client with an empty key": ({"clients": [{"host": "10.0.0.1", "shared_key": ""}]}, "is empty"),
    "a client with an unknown user": (
        {"shared_key": "k", "clients": [{"host": "10.0.0.1", "users": ["x"]}]},
        "FORWARD__USERS has no x",
    ),
    "nobody": ({"shared_key": "k", "allow_anonymous_source": False}, "refuses every client"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_make_no_sense(name: str) -> None:
    values, says = REFUSED[name]
    with pytest.raises(ValidationError, match=says):
        ForwardSection(**values)


def test_a_client_that_is_not_found() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.host\.invalid"):
        security(ForwardSection(shared_key="k", clients=({"host": "no.such.host.invalid"},)))


def test_a_client_by_name() -> None:
    guard = security(ForwardSection(shared_key="k", clients=({"host": "localhost"},)))
    assert guard is not None
    assert any(str(network) in ("127.0.0.1/32", "::1/128") for network in guard.rules[0].networks)


def test_settings_from_the_environment_and_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text('{"Alice": "pass word"}\n')
    monkeypatch.setenv("HEADRACE_FORWARD__SHARED_KEY", KEY)
    monkeypatch.setenv("HEADRACE_FORWARD__USERS_FILE", str(users))
    monkeypatch.setenv("HEADRACE_FORWARD__CLIENTS", '[{"host": "10.0.0.0/8", "users": ["Alice"]}]')
    forward = load(ForwardSettings).forward
    assert forward.users["Alice"].get_secret_value() == "pass word"
    assert forward.clients[0].users == ("Alice",)
    assert KEY not in repr(forward)
    assert "pass word" not in repr(forward)
    users.write_text("Alice:pass word")
    with pytest.raises(ConfigError, match=r"^HEADRACE_FORWARD__USERS: not JSON$"):
        load(ForwardSettings)
