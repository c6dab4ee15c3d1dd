"""Who may do what: by certificate, by Pravega's tokens, by where a client comes from; and what it hears if it may not."""

from __future__ import annotations

import hmac
import tracemalloc
from base64 import urlsafe_b64encode
from typing import Any

import orjson
import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Peer
from headrace_segment.session.dialects import SegmentSession
from headrace_segment.session.rights import ALL, Permission, Right, Rights
from headrace_segment.settings import SegmentSection
from headrace_segment.wire import messages as said

from tests.driving import NOW_MS, traced
from tests.segment import speaking
from tests.segment.instant import LIMITS, InstantStore
from tests.segment.recorded import W1
from tests.segment.speaking_today import HELLO, REQUEST, create, delete, get, info, read, seal, setup, truncate, update
from tests.segment.test_today_session import Talk

KEY = b"secret"
OF_PRAVEGA = (
    "eyJhbGciOiJIUzUxMiJ9.eyJleHAiOjM3MDc2MjUyMjgsInMxIjoiUkVBRF9VUERBVEUifQ."
    "j6xbFRIIZxv3GEedqKcZVy-49Y7U1710q-gjY43-UMgO_kwCH_9kJRuZ7Am589kg5TJewmGhGB9SPblES78pEg"
)
"""The example in the documentation of its `JsonWebToken`: READ_UPDATE of s1, until 2087."""

HERE, AWAY = Peer("127.0.0.1", 1, "127.0.0.1"), Peer("192.0.2.7", 1, "192.0.2.7")
BILLING = Peer("192.0.2.7", 1, "CN=billing", certified=True)


def token(until: float | None = None, key: bytes = KEY, alg: str = "HS512", **claims: Any) -> str:
    body: dict[str, Any] = {"sub": "x", "aud": "segmentstore", "iat": 1, **claims}
    if until is not None:
        body["exp"] = until
    signed = b".".join(urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in ({"alg": alg}, body))
    signature = hmac.digest(key, signed, f"sha{alg[2:]}") if alg.startswith("HS") else b""
    return (signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def may(rights: Rights, right: Right, segment: str, text: str, now: float = NOW_MS / 1000) -> Permission:
    return rights.may(AWAY, right, segment, text, int(now * 1000))


@pytest.mark.parametrize(
    ("peer", "may_destroy"),
    [
        (HERE, True),
        (Peer("::1", 1, "::1"), True),
        (Peer("::ffff:127.0.0.1", 1, "x"), True),
        (AWAY, False),
        (BILLING, False),
        (Peer("2001:db8::1", 1, "x"), False),
        (Peer("::ffff:192.0.2.7", 1, "x"), False),
    ],
)
def test_without_settings_only_clients_on_this_host_destroy(peer: Peer, may_destroy: bool) -> None:
    rights = Rights({}, b"")
    given = {right for right in Right if rights.may(peer, right, "a") is Permission.YES}
    assert given == (ALL if may_destroy else ALL - {Right.DESTROY})


def test_rights_of_certificates_and_of_anybody() -> None:
    refused: list[Any] = []
    given = {"CN=billing": frozenset({Right.APPEND}), "*": frozenset({Right.READ})}
    rights = Rights(given, b"", lambda *each: refused.append(each))
    for peer, expected in (
        (BILLING, {Right.READ, Right.APPEND}),
        (HERE, {Right.READ}),
        (Peer("192.0.2.7", 1, "CN=billing"), {Right.READ}),  # an address that looks like a subject is none
        (Peer("192.0.2.7", 1, "*", certified=True), {Right.READ}),
    ):
        assert {right for right in Right if rights.may(peer, right, "a") is Permission.YES} == expected
    assert refused[0] == (BILLING, "a", Right.CREATE)


def test_a_token_that_pravega_has_made() -> None:
    rights = Rights({}, KEY)
    for right in Right:
        assert may(rights, right, "s1", OF_PRAVEGA) is Permission.YES
        assert may(rights, right, "s1/x/0.#epoch.0", OF_PRAVEGA) is Permission.YES
        assert may(rights, right, "s10", OF_PRAVEGA) is Permission.NO
        assert may(rights, right, "s1", OF_PRAVEGA, 3707625228) is Permission.EXPIRED
        assert may(rights, right, "s1", OF_PRAVEGA, 3707625227.9) is Permission.YES
        assert may(Rights({}, b"another"), right, "s1", OF_PRAVEGA) is Permission.NO


@pytest.mark.parametrize(
    ("resource", "segment", "matches"),
    [
        ("*", "any/thing/0", True),
        ("prn::*", "any/thing/0", True),
        ("prn::/scope:abc/stream:xyz", "abc/xyz/0.#epoch.0", True),
        ("prn::/scope:abc/stream:xyz", "abc/xyz", True),
        ("prn::/scope:abc/stream:xyz", "abc/xyzw/0.#epoch.0", False),
        ("prn::/scope:abc", "abc/xyz/0.#epoch.0", True),
        ("abc/", "abc/xyz/0", True),
        ("prn::/scope:abd", "abc/xyz/0", False),
        ("", "abc", False),
        ("sub", "x", False),
    ],
)
def test_what_a_claim_is_about(resource: str, segment: str, matches: bool) -> None:
    claim: dict[str, Any] = {resource: "READ"}
    text = token(**claim)
    rights = Rights({}, KEY)
    assert (may(rights, Right.READ, segment, text) is Permission.YES) == matches
    assert may(rights, Right.APPEND, segment, text) is Permission.NO


def test_an_expired_token_of_another_segment_is_no_reason_for_a_younger_one() -> None:
    rights = Rights({}, KEY)
    assert may(rights, Right.READ, "b", token(until=1, a="READ")) is Permission.NO
    assert may(rights, Right.READ, "a", token(until=1, a="READ")) is Permission.EXPIRED


GOOD = token(a="READ_UPDATE")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a.b.c",
        "é.é.é",
        token(a="READ_UPDATE", b="READ").rpartition(".")[0] + "." + GOOD.rpartition(".")[2],
        GOOD.rpartition(".")[0],
        GOOD.rpartition(".")[0] + ".",
        "." + GOOD,
        token(a="READ_UPDATE", key=b"another"),
        token(a="READ_UPDATE", alg="none"),
        token(a="READ_UPDATE", until="soon"),  # type: ignore[arg-type]
        token(a="NONE"),
    ],
)
def test_what_is_no_token(text: str) -> None:
    assert may(Rights({}, KEY), Right.READ, "a", text) is Permission.NO


def test_tokens_of_any_length_take_no_memory() -> None:
    """A thousand refused ones of 64 KB were kept, for anybody who asked."""
    rights = Rights({}, KEY)
    with traced():
        for number in range(300):
            assert may(rights, Right.READ, "a", f"{number}." + "x" * 60_000) is Permission.NO
        assert tracemalloc.get_traced_memory()[0] < 1_000_000


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
def test_digests(alg: str) -> None:
    assert may(Rights({}, KEY), Right.READ, "a", token(a="READ", alg=alg)) is Permission.YES


def talk(rights: Rights, peer: Peer = AWAY) -> tuple[InstantStore, Talk]:
    store = InstantStore()
    talking = Talk(store, peer=peer)
    talking.session = SegmentSession(peer, LIMITS, rights)
    talking.hear(HELLO)
    return store, talking


def test_what_is_refused_is_said_and_changes_nothing() -> None:
    store, away = talk(Rights({}, b""))
    assert away.says(create()) == [said.SegmentCreated(REQUEST, "a")]
    refused = said.AuthTokenCheckFailed(REQUEST, "", said.TOKEN_CHECK_FAILED)
    assert [away.says(each) for each in (seal(), truncate(0), delete())] == [[refused]] * 3
    assert "a" in store.fold.segments
    assert not store.fold.segments["a"].sealed
    assert away.outcome.error is None
    assert len(away.says(setup(), read(), info())) == 3


def test_every_request_needs_its_right_and_no_other() -> None:
    nothing = Rights({"CN=x": frozenset()}, b"")
    asked = [setup(), create(), read(), info(), seal(), truncate(0), delete(), get(bytes(16)), update(bytes(16), 1, 0)]
    needed = ["append", "create", "read", "read", "destroy", "destroy", "destroy", "read", "append"]
    refused = said.AuthTokenCheckFailed(REQUEST, "", said.TOKEN_CHECK_FAILED)
    for request, right in zip(asked, needed, strict=True):
        assert talk(nothing)[1].says(request) == [refused]
        but_this = Rights({"*": ALL - {Right(right)}}, b"")
        assert talk(but_this)[1].says(request) == [refused]
        assert talk(Rights({"*": frozenset({Right(right)})}, b""))[1].says(request) != [refused]


def test_a_token_comes_with_its_request() -> None:
    _, client = talk(Rights({"*": frozenset({Right.CREATE})}, KEY))
    client.says(create())
    expired = said.AuthTokenCheckFailed(REQUEST, "", said.TOKEN_EXPIRED)
    assert client.says(setup(token=token(until=1, a="READ_UPDATE"))) == [expired]
    assert [type(each) for each in client.says(setup(token=token(a="READ_UPDATE")))] == [said.AppendSetup]


def test_the_original_dialect_has_no_words_for_it() -> None:
    for rights, data in (
        (Rights({"*": frozenset({Right.READ})}, b""), speaking.setup("a", W1)),
        (Rights({"*": frozenset({Right.APPEND})}, b""), speaking.read("a", 0, 10)),
    ):
        session = SegmentSession(AWAY, LIMITS, rights)
        with pytest.raises(ProtocolError, match="no right to"):
            session.receive(data, NOW_MS)


@pytest.mark.parametrize("may_create", [True, False])
def test_a_setup_of_the_original_dialect_creates_if_it_may(may_create: bool) -> None:
    given = {Right.APPEND, Right.CREATE} if may_create else {Right.APPEND}
    session = SegmentSession(AWAY, LIMITS, Rights({"*": frozenset(given)}, b""))
    session.receive(speaking.setup("a", W1), NOW_MS)
    (question,) = session.questions()
    assert question.create == may_create  # type: ignore[attr-defined]


def test_settings() -> None:
    read_as = SegmentSection.model_validate({"rights": {"CN=a": ["read", "append"]}})
    assert read_as.rights == {"CN=a": {Right.READ, Right.APPEND}}
    with pytest.raises(ValueError, match="write"):
        SegmentSection.model_validate({"rights": {"CN=a": ["write"]}})
