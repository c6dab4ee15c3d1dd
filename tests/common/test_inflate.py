"""Bounded inflating."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from collections.abc import Callable, Iterator

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import (
    LAST_WINDOW,
    MEMBER_BYTES,
    MEMBERS,
    SLICE,
    InflateLimits,
    inflate_gzip,
    inflate_zlib,
    inflate_zstd,
    zstd,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.driving import BARREN_GZIP, BARREN_ZLIB
from tests.tiers import examples

MIB = 1 << 20
WIDE = InflateLimits(64 * MIB, 1_000_000)
Inflate = Callable[[bytes, InflateLimits], Iterator[bytes]]
ALL: list[tuple[Inflate, Callable[[bytes], bytes]]] = [
    (inflate_gzip, gzip.compress),
    (inflate_zlib, zlib.compress),
    (inflate_zstd, zstd.compress),
]


def whole(data: bytes, limits: InflateLimits = WIDE) -> bytes:
    return b"".join(inflate_gzip(data, limits))


def fault(data: bytes, limits: InflateLimits = WIDE, inflate: Inflate = inflate_gzip) -> str | None:
    with pytest.raises(ProtocolError) as caught:
        for _ in inflate(data, limits):
            pass
    return caught.value.limit


class TestGzip:
    @settings(max_examples=examples(500))
    @given(st.lists(st.binary(max_size=300), max_size=30))
    def test_any_number_of_members(self, members: list[bytes]) -> None:
        assert whole(b"".join(map(gzip.compress, members))) == b"".join(members)

    def test_cut_anywhere(self) -> None:
        data = gzip.compress(random.Random(1).randbytes(300) * 3)
        for cut in range(1, len(data)):
            assert fault(data[:cut]) is None


class TestZstd:
    def test_skippable_frames_are_skipped(self) -> None:
        skippable = b"\x52\x2a\x4d\x18\x05\x00\x00\x00noise"
        frames = skippable + zstd.compress(b"one") + skippable + zstd.compress(b"two") + skippable
        assert b"".join(inflate_zstd(frames, WIDE)) == b"onetwo"
        assert b"".join(inflate_zstd(zstd.compress(b""), WIDE)) == b""

    def test_blocks_without_output_are_inflated_in_steps(self) -> None:
        """16 MiB of them, one frame, held the event loop for 70 ms."""
        data = b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\0\0x" * 20_000 + b"\x01\0\0"  # RLE blocks of no bytes
        pieces = list(inflate_zstd(data, WIDE))
        assert b"".join(pieces) == b""
        assert len(pieces) >= len(data) / LAST_WINDOW

    def test_every_cut_is_noticed(self) -> None:
        first = zstd.compress(b"some text, some text")
        whole = first + zstd.compress(b"more", options={zstd.CompressionParameter.checksum_flag: 1})
        for end in range(1, len(whole)):
            assert end == len(first) or fault(whole[:end], WIDE, inflate_zstd) is None

    def test_a_window_beyond_what_everybody_supports_is_refused(self) -> None:
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


X, A, BEHIND = zlib.compress(b"x"), gzip.compress(b"a", mtime=0), gzip.compress(b"b", mtime=0)


@pytest.mark.parametrize(
    ("inflate", "data"),
    [
        *((inflate_gzip, A + rest) for rest in (b"x", b"\0x", b"\0\0\x1f\x8b", BEHIND[:5], BEHIND[:-1])),
        (inflate_gzip, b"\0\0\0"),
        *((inflate_zlib, data) for data in (b"", b"no", X[:-1], X + b"y", X * 2)),
    ],
)
def test_what_is_no_stream_or_more_than_streams_is_no_limits_fault(inflate: Inflate, data: bytes) -> None:
    assert fault(data, WIDE, inflate) is None


@pytest.mark.parametrize(("inflate", "compress"), ALL, ids=["gzip", "zlib", "zstd"])
class TestLimits:
    def test_total_on_both_sides(self, inflate: Inflate, compress: Callable[[bytes], bytes]) -> None:
        """No more than the limit comes out before the fault, of a bomb, too, and no slice has more than a mebibyte."""
        for content in (os.urandom(100), os.urandom(SLICE), os.urandom(SLICE + 100), bytes(50 * MIB)):
            size, data = len(content), compress(content)
            sizes = [len(piece) for piece in inflate(data, InflateLimits(size, 1_000_000))]
            assert (sum(sizes), max(sizes) <= SLICE) == (size, True)
            for most in (size - 1, size // 8):
                made: list[int] = []
                with pytest.raises(ProtocolError) as caught:
                    made.extend(len(piece) for piece in inflate(data, InflateLimits(most, 1_000_000)))
                assert (caught.value.limit, sum(made) <= most) == ("LIMITS__INFLATED_BYTES", True)

    @pytest.mark.parametrize("size", [0, 4097, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE, 2 * SLICE + 1, 3 * SLICE + 77])
    @pytest.mark.parametrize("level", [0, 1, 9])
    def test_what_the_decompressor_holds_back_comes_out(
        self, size: int, level: int, inflate: Inflate, compress: Callable[..., bytes]
    ) -> None:
        """A slice may be full while all input is consumed: of a zlib stream the rest was taken for missing."""
        for content in (b"z" * size, b"z" * (size - 1) + b"y", os.urandom(1000) * (size // 1000)):
            assert b"".join(inflate(compress(content, level), WIDE)) == content


@pytest.mark.parametrize(
    ("inflate", "data", "steps"),
    [
        (inflate_gzip, BARREN_GZIP, len(BARREN_GZIP) / LAST_WINDOW),
        (inflate_zlib, BARREN_ZLIB, len(BARREN_ZLIB) / LAST_WINDOW),
        (inflate_gzip, gzip.compress(b"") * 250, 250),
    ],
    ids=["gzip", "zlib", "members"],
)
def test_blocks_without_output_are_inflated_in_steps(inflate: Inflate, data: bytes, steps: float) -> None:
    """16 MiB of them, one frame, held the event loop for more than five seconds."""
    pieces = list(inflate(data, WIDE))
    assert b"".join(pieces) == b""
    assert len(pieces) >= steps
