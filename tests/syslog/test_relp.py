"""RELP's session: what real clients sent, what is answered when, and what ends a connection."""

from __future__ import annotations

import pytest
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Frame
from headrace_syslog.session import RelpSession
from headrace_syslog.wire.relp import STORED, RelpFrame

from tests.driving import NOW_MS, PEER
from tests.syslog.driving import OPEN, VECTORS, drive, every_way, relayed


def recorded(name: str) -> bytes:
    return (VECTORS / f"{name}.bin").read_bytes()


def session() -> RelpSession:
    driven = RelpSession(PEER, LimitSettings())
    driven.receive(OPEN, NOW_MS)
    assert driven.outgoing().startswith(b"1 rsp ")
    return driven


@pytest.mark.parametrize("kind", ["plain", "numbered"])
def test_what_rsyslog_sent_is_understood(kind: str) -> None:
    found = every_way(recorded(f"omrelp_{kind}.c2.c2s"))
    assert found.error is None
    assert [reply.encode() for reply in found.replies] == recorded(f"omrelp_{kind}.c2.s2c").splitlines(
        keepends=True
    ) or (b"".join(reply.encode() for reply in found.replies) == recorded(f"omrelp_{kind}.c2.s2c"))
    assert [each.json["message"] for each in found.events][:2] == [" one – ü", " two"]
    assert {each.source for each in found.events} == {"/relp/web1.example.org"}
    assert not found.partial


def test_rsyslog_resends_the_same_bytes_after_a_broken_connection() -> None:
    first, second = (drive([recorded(f"omrelp_numbered.{each}.c2s")]) for each in ("c1", "c2"))
    ids = [each.id for each in first.events]
    assert ids == [each.id for each in second.events][: len(ids)]
    assert len(set(ids)) == len(ids) == 3  # two of them have the same text


def test_answers_keep_the_order_of_messages() -> None:
    driven, frames = session(), list[Frame]()
    for number in (2, 3):
        driven.receive(relayed(b"m", b"n", first=2 * number), NOW_MS)
        frames += driven.frames()
    first, second = frames
    driven.stored(second.ticket, 2, True)
    assert driven.outgoing() == b""
    driven.stored(first.ticket, 1, False)
    assert driven.outgoing() == STORED % 4
    driven.stored(first.ticket, 2, True)
    assert driven.outgoing() == STORED % 5 + STORED % 6 + STORED % 7


def test_one_reject_of_several_messages_answers_them_all() -> None:
    """A bug ended the making of a frame: the rest of it is one reject."""
    driven = session()
    driven.receive(relayed(b"m", b"n", b"o", first=2), NOW_MS)
    (frame,) = driven.frames()
    driven.stored(frame.ticket, 2, True)
    assert driven.outgoing() == STORED % 2 + STORED % 3 + STORED % 4


def test_nothing_is_answered_behind_an_abandoned_message() -> None:
    driven = session()
    driven.receive(relayed(b"m"), NOW_MS)
    (frame,) = driven.frames()
    driven.abandon(frame.ticket)
    driven.receive(RelpFrame(3, b"close").encode(), NOW_MS)
    assert driven.outgoing() == b""


def test_a_close_is_answered_behind_all_messages() -> None:
    driven = session()
    driven.receive(relayed(b"m") + b"3 close 0\n", NOW_MS)
    (frame,) = driven.frames()
    assert driven.outgoing() == b""
    driven.stored(frame.ticket, 1, True)
    assert driven.outgoing() == STORED % 2 + b"3 rsp 0\n0 serverclose 0\n"


@pytest.mark.parametrize("asked", [b"relp_version=0", b"relp_version=1\ncommands=syslog", b""])
def test_version_0_is_offered_to_all(asked: bytes) -> None:
    (reply,) = drive([RelpFrame(1, b"open", asked).encode()]).replies
    assert reply.data.split(b"\n")[:2] == [b"200 OK", b"relp_version=0"]


@pytest.mark.parametrize("size", [b"0\n", b"0 \n"])
def test_a_frame_without_data_may_end_in_both_ways(size: bytes) -> None:
    (event,) = every_way(OPEN + b"2 syslog " + size).events
    assert event.json["message"] == ""


@pytest.mark.parametrize(
    "broken",
    [
        b"x", b"1234567890 syslog 1 m\n", b"2 syslog 1234567890 m\n", b"2 starttls 0\n", b"2 syslogsyslog 0\n",
        b"2 syslog 1 mm", b"2 syslog 1\nm\n", b"2 syslog 1\n\n", b"2 open 0\n",
    ],
)  # fmt: skip
def test_what_is_no_frame_ends_the_connection_where_it_begins(broken: bytes) -> None:
    found = every_way(OPEN + relayed(b"m") + broken)
    assert found.error is not None
    assert found.error.offset == len(OPEN + relayed(b"m"))
    assert len(found.events) == 1


def test_the_longest_numbers_are_taken() -> None:
    found = every_way(OPEN + b"999999999 syslog 000000001 m\n")
    assert found.error is None
    assert found.replies[-1].number == 999_999_999


def test_a_frame_after_close_ends_the_connection() -> None:
    found = every_way(OPEN + b"2 close 0\n" + relayed(b"m"))
    assert found.error is not None
    assert found.error.offset == len(OPEN) + len(b"2 close 0\n")


def test_a_message_before_open_ends_the_connection() -> None:
    found = every_way(relayed(b"m"))
    assert found.error is not None
    assert found.error.offset == 0


def test_an_announced_size_is_refused_before_its_data_comes() -> None:
    assert every_way(OPEN + relayed(b"m" * 1024), frame_bytes=1024).error is None
    found = drive([OPEN + b"2 syslog 1025 "], frame_bytes=1024)
    assert found.error is not None
    assert found.error.limit == "LIMITS__FRAME_BYTES"


def test_a_stream_that_ends_inside_a_frame_is_told() -> None:
    found = drive([OPEN + relayed(b"m")[:-1]])
    assert found.error is not None
    assert not found.events


def test_a_message_that_is_too_large_is_answered_and_kept() -> None:
    found = every_way(OPEN + relayed(b"m" * 2000, b"n"), event_bytes=1024)
    assert [reject.raw for reject in found.rejects] == [b"m" * 2000]
    assert [reply.data for reply in found.replies[1:]] == [b"200 OK"] * 2
