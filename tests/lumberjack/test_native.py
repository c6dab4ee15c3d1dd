"""The native core makes the same of J frames as Python, which `drive` compares."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native
from headrace_common.record.native import MOST_ODD
from headrace_common.session.inflate import InflateLimits
from headrace_lumberjack.wire import RUN, LumberjackDecoder, WireLimits, encode, json_frame, window
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lumberjack.driving import document, drive, session
from tests.native import calls, needs_native, using
from tests.tiers import examples

pytestmark = needs_native


def check(*raws: bytes, **limits: Any) -> int:
    """Compares what the cores make of events. Returns in how many calls the native core makes them."""
    data = window(len(raws)) + b"".join(json_frame(1 + n, raw) for n, raw in enumerate(raws))
    assert len(drive([data], **limits).flat) == len(raws)
    return calls(session(**limits), data)


def cut(content: bytes, core: str) -> list[Any]:
    """What these frames of a window are cut into."""
    decoder = LumberjackDecoder(WireLimits(40, 10_000, 10, 10, 10), InflateLimits(1 << 20, 1000))
    found: list[Any] = []
    with using(core):
        try:
            for piece in (window(10_000), content):
                found += decoder.receive(piece)
                while decoder.busy:
                    found += decoder.receive(b"")
        except ProtocolError as error:
            found.append(str(error))
    return [*found, decoder.partial_bytes()]


numbers = st.integers(0, 3) | st.integers(2**32 - 2, 2**32 - 1)
frames = st.builds(json_frame, numbers, st.binary(max_size=32)) | st.binary(max_size=12) | st.just(window(3))


@settings(max_examples=examples(1000))
@given(st.lists(frames, max_size=8).map(b"".join), st.integers(0, 300))
def test_any_frames_are_cut_alike(content: bytes, size: int) -> None:
    for whole in (content, content[:size]):
        assert cut(whole, "native") == cut(whole, "python")


def test_frames_are_cut_in_few_calls() -> None:
    content = b"".join(json_frame(n, b"{}") for n in range(RUN + 7))
    assert [len(item) for item in cut(content, "native")[1:-1]] == [RUN, 7]
    assert cut(content, "native") == cut(content, "python")


def test_what_beats_send_is_made_in_few_calls() -> None:
    """Else the core would be there and never used."""
    raws = [document(n, message='a "quoted" line\n') for n in range(50)]
    assert check(*raws) == 1
    assert check(*raws, *(document(n, host={"name": f"h{n % 3}"}) for n in range(50))) == 1
    assert check(document(log=None, agent=None, message=None), document(host="h", tags=["t"])) == 1
    assert calls(session(), encode([orjson.loads(document(n)) for n in range(500)])) < 10


@pytest.mark.parametrize("every", [1, 2, 3, 50, 400])
def test_events_that_are_not_plain_among_others(every: int) -> None:
    raws = [document(n, **({"@timestamp": "yesterday"} if n % every == 0 else {})) for n in range(4 * MOST_ODD)]
    assert check(*raws) < 30 or every < 50


def test_events_at_each_side_of_the_limits() -> None:
    def of(size: int) -> bytes:
        return document(message="x" * (size - len(document(message=""))))

    for size in range(1020, 1030):
        check(of(size), event_bytes=1024)
    for depth, most in ((6, 9), (200, 140)):
        for levels in range(max(1, most - 20), most):
            check(document()[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}", depth=depth)
    for size in (16_000, 16_384, 16_385, 70_000):
        check(document(), of(size), document(), event_bytes=100_000)
    check(*(document(n, fields={"f": "x" * size}) for n, size in enumerate((1, 1500, 1999, 2100, 9000, 1))))  # origins


def test_a_bug_in_the_core_is_an_exception() -> None:
    """It unwinds: the frame is spoiled, and the process lives."""
    assert native.NATIVE is not None
    frame = json_frame(1, document())
    with pytest.raises(ValueError, match="tuple"):
        native.NATIVE.documents(lambda key, raw: (), b"u." + b"0" * 24, (1 << 20, 64), frame, 0, 1)  # type: ignore[arg-type,return-value]
    with pytest.raises(RuntimeError):
        native.NATIVE.documents(lambda key, raw: None, b"too short", (1 << 20, 64), frame, 0, 1)
