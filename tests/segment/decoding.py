"""Feeds a decoder of either dialect with bytes, whole and split."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_segment.wire.original import OriginalDecoder
from headrace_segment.wire.today import TodayDecoder

from tests.driving import at_random, one_by_one

FRAME_BYTES = 4096
Kind = type[OriginalDecoder] | type[TodayDecoder]


def fed(kind: Kind, pieces: Iterable[bytes], frame_bytes: int = FRAME_BYTES) -> tuple[list[Any], Any, bool]:
    """What came out, the fault, and whether nothing is left."""
    decoder = kind(frame_bytes)
    found: list[Any] = []
    error = None
    try:
        for piece in pieces:
            found += decoder.receive(piece)
            while decoder.busy:
                found += decoder.receive(b"")
            assert decoder.partial_bytes() <= 3 * frame_bytes + len(piece)
    except ProtocolError as fault:
        error = str(fault), fault.limit, fault.offset
        with pytest.raises(ProtocolError):
            list(decoder.receive(b""))
        assert decoder.partial_bytes() == 0
    return found, error, not decoder.partial_bytes()


def every_way(kind: Kind, data: bytes, frame_bytes: int = FRAME_BYTES) -> tuple[list[Any], Any, bool]:
    """The same, however the bytes are split."""
    whole = fed(kind, [data], frame_bytes)
    assert fed(kind, one_by_one(data), frame_bytes) == whole
    assert fed(kind, at_random(data, random.Random(1)), frame_bytes) == whole
    return whole


fed_original, every_way_original = partial(fed, OriginalDecoder), partial(every_way, OriginalDecoder)
fed_today, every_way_today = partial(fed, TodayDecoder), partial(every_way, TodayDecoder)
