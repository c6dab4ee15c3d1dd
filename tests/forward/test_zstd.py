"""zstd, bounded: several frames, skippable ones, what is cut off, what is too much."""

from __future__ import annotations

import random

import pytest
from backports import zstd
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import LAST_WINDOW, SLICE, InflateLimits
from headrace_forward.entries.zstd import inflate_zstd

LIMITS = InflateLimits(total=64 << 20, ratio=1000)
SKIPPABLE = b"\x52\x2a\x4d\x18\x05\x00\x00\x00noise"


def content(data: bytes, limits: InflateLimits = LIMITS) -> bytes:
    return b"".join(inflate_zstd(data, limits))


def test_several_frames_are_one_content() -> None:
    frames = [zstd.compress(b"line %d\n" % number * 50) for number in range(700)]
    assert content(b"".join(frames)) == b"".join(b"line %d\n" % number * 50 for number in range(700))


def test_skippable_frames_are_skipped() -> None:
    assert content(SKIPPABLE + zstd.compress(b"one") + SKIPPABLE + zstd.compress(b"two") + SKIPPABLE) == b"onetwo"


def test_nothing_is_nothing() -> None:
    assert content(b"") == b""
    assert content(zstd.compress(b"")) == b""


def test_slices_are_bounded() -> None:
    data = random.Random(1).randbytes(5 << 20)
    pieces = list(inflate_zstd(zstd.compress(data), LIMITS))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= SLICE


def test_blocks_without_output_are_inflated_in_steps() -> None:
    """16 MiB of them, one frame, held the event loop for 70 ms."""
    data = b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\0\0x" * 20_000 + b"\x01\0\0"  # RLE blocks of no bytes, the last raw
    pieces = list(inflate_zstd(data, LIMITS))
    assert b"".join(pieces) == b""
    assert len(pieces) >= len(data) / LAST_WINDOW


def test_every_cut_is_noticed() -> None:
    whole = zstd.compress(b"some text, some text") + zstd.compress(
        b"more", options={zstd.CompressionParameter.checksum_flag: 1}
    )
    boundary = len(zstd.compress(b"some text, some text"))
    for end in range(1, len(whole)):
        if end == boundary:
            continue
        with pytest.raises(ProtocolError) as caught:
            content(whole[:end])
        assert caught.value.limit is None


def test_what_is_no_zstd_is_refused() -> None:
    with pytest.raises(ProtocolError):
        content(zstd.compress(b"good") + b"junk, junk")


def test_the_total_is_a_limit_on_both_sides() -> None:
    data = random.Random(2).randbytes(100_000)
    assert content(zstd.compress(data), InflateLimits(100_000, 1000)) == data
    with pytest.raises(ProtocolError) as caught:
        content(zstd.compress(data), InflateLimits(99_999, 1000))
    assert caught.value.limit == "LIMITS__INFLATED_BYTES"


def test_a_bomb_is_stopped_by_its_ratio() -> None:
    bomb = zstd.compress(bytes(60 << 20))
    sizes: list[int] = []
    with pytest.raises(ProtocolError) as caught:
        sizes.extend(map(len, inflate_zstd(bomb, LIMITS)))
    assert caught.value.limit == "LIMITS__RATIO"
    assert sum(sizes) <= max(SLICE, 1000 * len(bomb)) + SLICE


def test_a_window_beyond_what_everybody_supports_is_refused() -> None:
    data = random.Random(3).randbytes(1000)

    def with_window(log: int) -> bytes:
        # streamed, so that the frame states its window and not the content's size
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
        return compressor.compress(data, zstd.ZstdCompressor.FLUSH_BLOCK) + compressor.flush()

    assert content(with_window(23)) == data
    with pytest.raises(ProtocolError):
        content(with_window(24))
