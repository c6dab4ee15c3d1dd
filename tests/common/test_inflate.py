"""Bounded inflating."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import (
    MEMBER_BYTES,
    MEMBERS,
    SLICE,
    WINDOW,
    inflate_gzip,
    inflate_zlib,
    inflate_zstd,
    zstd,
)

MIB = 1 << 20
WIDE = 64 * MIB
Inflate = Callable[[bytes, int], Iterator[bytes]]
ALL: list[tuple[Inflate, Callable[[bytes], bytes]]] = [
    (inflate_gzip, gzip.compress),
    (inflate_zlib, zlib.compress),
    (inflate_zstd, zstd.compress),
]


def fault(data: bytes, most: int, inflate: Inflate) -> str | None:
    with pytest.raises(ProtocolError) as caught:
        for _ in inflate(data, most):
            pass
    return caught.value.limit


FRAMES = zstd.compress(b"some text, some text"), zstd.compress(b"more"), b"\x52\x2a\x4d\x18\x05\0\0\0noise"
"""Of zstd. The last is skipped."""
SUMMED = FRAMES[0] + zstd.compress(b"more", options={zstd.CompressionParameter.checksum_flag: 1})


def test_members_and_frames_are_one_stream_without_a_cut() -> None:
    members = [gzip.compress(random.Random(seed).randbytes(300) * 3, mtime=0) for seed in range(3)]
    assert len(b"".join(inflate_gzip(b"".join(members), WIDE))) == 3 * 900
    frames = FRAMES[2] + FRAMES[0] + FRAMES[2] + FRAMES[1] + FRAMES[2]
    assert b"".join(inflate_zstd(frames, WIDE)) == b"some text, some textmore"
    for inflate, data, whole in (inflate_gzip, members[0], 0), (inflate_zstd, SUMMED, len(FRAMES[0])):
        for end in range(1, len(data)):
            assert end == whole or fault(data[:end], WIDE, inflate) is None


def test_a_window_beyond_what_everybody_supports_is_refused() -> None:
    def with_window(log: int) -> bytes:
        # streamed, so that the frame states its window and not the content's size
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
        return compressor.compress(b"x" * 1000, zstd.ZstdCompressor.FLUSH_BLOCK) + compressor.flush()

    assert b"".join(inflate_zstd(with_window(23), WIDE)) == b"x" * 1000
    assert fault(with_window(24), WIDE, inflate_zstd) is None


@pytest.mark.parametrize(("inflate", "compress"), [ALL[0], ALL[2]], ids=["gzip", "zstd"])
def test_members_have_a_limit(inflate: Inflate, compress: Callable[[bytes], bytes]) -> None:
    """In proportion to the bytes: each takes 10 µs, however short it is."""
    member = compress(b"")
    size = MEMBERS * MEMBER_BYTES // (MEMBER_BYTES - len(member))
    assert b"".join(inflate(member * size, WIDE)) == b""
    assert fault(member * (size + 9), WIDE, inflate) is None
    long = compress(os.urandom(MEMBER_BYTES))
    assert len(b"".join(inflate(long * 9 * MEMBERS, WIDE))) == 9 * MEMBERS * MEMBER_BYTES


BARREN_ZSTD = b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\0\0x" * 20_000 + b"\x01\0\0"
"""RLE blocks of no bytes."""
X, A, BEHIND = zlib.compress(b"x"), gzip.compress(b"a", mtime=0), gzip.compress(b"b", mtime=0)


@pytest.mark.parametrize(
    ("inflate", "data"),
    [
        *((inflate_gzip, A + rest) for rest in (b"x", b"\0x", b"\0\0\x1f\x8b", BEHIND[:5], BEHIND[:-1])),
        (inflate_gzip, b"\0\0\0"),
        *((inflate_zlib, data) for data in (b"", b"no", X[:-1], X + b"y", X * 2)),
    ],
)
def test_what_is_no_stream_is_no_limits_fault(inflate: Inflate, data: bytes) -> None:
    assert fault(data, WIDE, inflate) is None


@pytest.mark.parametrize("size", [0, 4097, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE, 2 * SLICE + 1, 50 * SLICE + 77])
@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize(("inflate", "compress"), ALL, ids=["gzip", "zlib", "zstd"])
def test_all_comes_out_in_slices_up_to_the_limit(
    size: int, level: int, inflate: Inflate, compress: Callable[..., bytes]
) -> None:
    """A slice may be full while all input is consumed: of a zlib stream the rest was taken for missing."""
    for content in (b"z" * size, os.urandom(1000) * (size // 1000)):
        data = compress(content, level)
        pieces = list(inflate(data, max(1, len(content))))
        assert b"".join(pieces) == content
        assert max(map(len, pieces), default=0) <= SLICE
        made: list[int] = []
        with pytest.raises(ProtocolError) if content else nullcontext():
            made.extend(len(piece) for piece in inflate(data, max(1, len(content) // 8)))
        assert sum(made) <= len(content) // 8


@pytest.mark.parametrize(
    ("inflate", "data", "steps"),
    [(inflate_gzip, gzip.compress(b"") * 250, 250), (inflate_zstd, BARREN_ZSTD, len(BARREN_ZSTD) / WINDOW)],
    ids=["members", "zstd"],
)
def test_blocks_without_output_are_inflated_in_steps(inflate: Inflate, data: bytes, steps: float) -> None:
    """16 MiB of them, one frame, held the event loop for more than five seconds."""
    pieces = list(inflate(data, WIDE))
    assert b"".join(pieces) == b""
    assert len(pieces) >= steps
