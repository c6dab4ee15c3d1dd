"""Meta, names and bodies, both ways, and on both sides of each limit."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest
import snappy
from headrace_common.operations.errors import ProtocolError
from headrace_logjam.client import MESSAGE_FRAMES, LogjamClient
from headrace_logjam.wire import METHODS, Meta, compress, encode_meta, inflate, read_request, read_unanswered, split

from tests.driving import finish

MOST = 1000


def inflated(method: int, body: bytes, most: int) -> bytes:
    return finish(inflate(method, body, most))


def test_what_ruby_calls_zlib_is_gzip() -> None:
    assert inflated(1, gzip.compress(b"{}", mtime=0), MOST) == b"{}"
    assert inflated(1, zlib.compress(b"{}"), MOST) == b"{}"


FRAMED_SNAPPY = snappy.StreamCompressor().compress(b'{"a":1}' * 9)
WORDS = zlib.compressobj(zdict=b"words")
UNREADABLE = [
    (1, b"", "ends inside"),
    (1, b"no zlib at all", "does not inflate"),
    (1, zlib.compress(b"{}")[:-1], "ends inside"),
    (1, zlib.compress(b"{}") + b"x", "1 bytes follow"),
    (1, gzip.compress(b"{}", mtime=0) * 2, "bytes follow"),
    (1, WORDS.compress(b"words words") + WORDS.flush(), "does not inflate"),
    (2, b"", "snappy"),
    (2, b"\xff" * 12, "snappy"),
    (2, FRAMED_SNAPPY, "snappy"),
    (2, b"\xff\xff\xff\xff\x10", "announces no length"),  # 33 bits
    (3, b"", "no room for the length"),
    (3, b"\0\0\0", "no room for the length"),
    (3, struct.pack(">I", 255) + b"x", "LZ4"),
    (3, struct.pack(">I", 9) + compress(3, b"x" * 8)[4:], "LZ4 block of 8 bytes that announces 9"),
    (3, struct.pack(">I", 7) + compress(3, b"x" * 8)[4:], "LZ4"),
    (4, b"{}", "compression 4 is unknown"),
    (255, b"{}", "compression 255 is unknown"),
    (2, b"\xe8\x07\x00a", "a snappy block that cannot hold the 1000 bytes that it announces"),
    (3, struct.pack(">I", 1000) + b"\x10a", "a LZ4 block that cannot hold the 1000 bytes that it announces"),
]


@pytest.mark.parametrize(("method", "body", "problem"), UNREADABLE)
def test_what_cannot_be_read_is_no_matter_of_limits(method: int, body: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem) as caught:
        inflated(method, body, MOST)
    assert caught.value.limit is None


@pytest.mark.parametrize(("method", "body"), [(2, b"\xff\xff\xff\xff\x0f"), (3, b"\xff" * 4)])
def test_an_announced_length_is_judged_before_anything_is_allocated(method: int, body: bytes) -> None:
    with pytest.raises(ProtocolError, match="4294967295 bytes") as caught:
        inflated(method, body + b"x" * 9, MOST)
    assert caught.value.limit == "LIMITS__EVENT_BYTES"


GOOD = [b"a-b", b"logs.a.b", b"{}", encode_meta(Meta())]


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (GOOD, ""),
        ([b"ping", b"", b"{}", GOOD[3]], ""),
        ([*GOOD[:3], b""], "meta has 0 bytes, not 24"),
        ([], "0 frames, not 4"),
        (GOOD[:3], "3 frames, not 4"),
        ([*GOOD, b""], "5 frames, not 4"),
        ([b"heartbeat", b"tcp://here:9606", *GOOD[2:]], "no app-env: 'heartbeat'"),
        ([b"app-\x1f", *GOOD[1:]], "no app-env: 'app-\\x1f'"),
        ([b"x" * 300, *GOOD[1:]], f"no app-env: '{'x' * 64}'"),
        *(([b"a-b", topic, *GOOD[2:]], "") for topic in (b"javascript", b"frontend.page", b"frontend.ajax.shop")),
        ([b"a-b", b"frontend.webvitals", *GOOD[2:]], "unknown topic: 'frontend.webvitals'"),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
def test_requests(frames: list[bytes], problem: str, asks: bool) -> None:
    request = read_request([b"", *frames] if asks else frames, "x")
    if not frames and not asks:
        return
    assert (list(request.frames), request.asks, request.problem) == (frames, asks, problem)


def test_who_is_not_answered_may_leave_meta_out() -> None:
    for frames in (GOOD, GOOD[:3]):
        request = read_unanswered(frames, "x")
        assert (list(request.frames[:3]), request.asks, request.problem) == (GOOD[:3], False, "")
    assert read_unanswered(GOOD[:2], "x").problem == "2 frames, not 4"
    assert read_unanswered([b"", *GOOD], "x").problem == "5 frames, not 4"


def test_what_the_client_breaks_is_not_compressed() -> None:
    """Quarantine has the bytes as they were sent, so that what was broken can be read there."""
    client, mark = LogjamClient(app_envs=1), "abcd" * 8
    for _ in METHODS:
        assert mark.encode() in client.faulty([{"mark": mark, "token": mark}] * 2)


def test_the_clients_app_envs_take_turns() -> None:
    """Answers name nothing else: with one app-env, a missing answer would be taken for a late one."""
    frames = split(LogjamClient(app_envs=2).payload([b"{}"] * 3))
    assert frames[1::MESSAGE_FRAMES] == [b"headrace-send-%02d" % turn for turn in (0, 1, 0)]
