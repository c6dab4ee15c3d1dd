"""The native core makes the same bytes of J frames as Python: of what Beats send, of every JSON, at every limit."""

from __future__ import annotations

import os
from typing import Any

import orjson
import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native
from headrace_common.record.event import Part
from headrace_common.record.native import MOST_ODD
from headrace_common.session.inflate import InflateLimits
from headrace_common.session.interface import Frame, Pause, Peer
from headrace_lumberjack.wire import RUN, LumberjackDecoder, WireLimits, encode, json_frame, window
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.driving import PEER, feed
from tests.jsons import documents, times
from tests.lumberjack.driving import document, session
from tests.native import needs_native, using
from tests.tiers import examples

pytestmark = needs_native


def built(data: bytes, core: str, peer: Peer, **limits: Any) -> tuple[list[Part | Pause], int]:
    """Every part of every frame of `data`, byte for byte, and how many runs of them there were; nothing is random in an id."""
    made: list[Part | Pause] = []
    count = 0
    with using(core), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda size: bytes(size))
        driven = session(peer, **limits)
        frames: list[Frame] = []
        feed(driven, data, serve=lambda: frames.extend(driven.frames()))
        for frame in frames:
            at_once = frame.at_once() if frame.small else None
            parts: list[Part | Pause] = []
            runs = frame.runs() if at_once is None else [at_once]
            for run in (run for run in runs if run):
                count += 1
                parts += run if isinstance(run, list) else [run]
            made += parts
    return made, count


def check(*raws: bytes, peer: Peer = PEER, **limits: Any) -> int:
    """Compares what the cores make of events. Returns in how many runs the native core makes them."""
    data = window(len(raws)) + b"".join(json_frame(1 + n, raw) for n, raw in enumerate(raws))
    expected, _ = built(data, "python", peer, **limits)
    made, runs = built(data, "native", peer, **limits)
    assert made == expected
    assert len(made) == len(raws)
    return runs


def is_plain(*raws: bytes, **limits: Any) -> bool:
    """Whether the native core makes all these events."""
    assert native.NATIVE is not None
    data = b"".join(json_frame(1 + n, raw) for n, raw in enumerate(raws))
    most = (limits.get("event_bytes", 1 << 20), limits.get("depth", 64))

    def find(_: bytes, raw: bytes) -> native.Origin:
        return (b"",) * 5, b"" if b'"agent"' in raw else None

    made, read = native.NATIVE.documents(find, b"u." + b"0" * 24, most, data, 0, len(raws))
    assert (read == len(data)) == (len(made) == len(raws))
    return read == len(data)


NAMES = {
    "@metadata": ("beat", "index", "raw_index", "_id"), "agent": ("id", "ephemeral_id", "hostname"), "log": ("file", "offset"),
    "event": ("dataset",), "host": ("name",), "type": (), "message": (), "tags": (), "fields": (), "data_stream": (), "other": (),
    "@timestamp": (),
}  # fmt: skip
events = documents(NAMES, orjson.loads(document(7)))


@settings(max_examples=examples(2000))
@given(st.lists(events, min_size=1, max_size=5))
def test_events_with_any_fields(raws: list[bytes]) -> None:
    check(*raws)
    check(*raws, raws[0], peer=Peer("192.0.2.7", 1, "CN=a,O=b", certified=True))


@settings(max_examples=examples(2000))
@given(times)
def test_any_time(time: str) -> None:
    check(document(**{"@timestamp": time}), document(1))


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


def test_frames_of_a_compressed_frame_are_cut_in_one_call() -> None:
    assert native.NATIVE is not None
    content = b"".join(json_frame(n, b"{}") for n in range(RUN + 7))
    assert len(native.NATIVE.frames(content, 24, 99, 9)[0]) == 9
    assert [len(item) for item in cut(content, "native")[1:-1]] == [RUN, 7]
    assert cut(content, "native") == cut(content, "python")


def test_what_beats_send_is_plain() -> None:
    """Else the core would be there and never used."""
    raws = [document(n, message='a "quoted" line\n') for n in range(50)]
    assert is_plain(*raws)
    assert is_plain(
        document(log=None, agent=None, message=None), document(host="h", event={"dataset": "d"}, tags=["t"])
    )
    assert check(*raws) == 1
    assert check(*raws, *(document(n, host={"name": f"h{n % 3}"}) for n in range(50))) == 1
    data = encode([orjson.loads(document(n)) for n in range(500)])
    made, runs = built(data, "native", PEER)
    assert made == built(data, "python", PEER)[0]
    assert runs < 10


def test_what_it_refuses_is_built_by_python_alone() -> None:
    for raw in (
        b"[]",
        document(**{"@timestamp": None}),
        document(message=None),
        document(**{"@metadata": {"_id": "1"}}),
    ):
        assert not is_plain(raw)
        check(document(1), raw, document(2))


@pytest.mark.parametrize("every", [1, 2, 3, 50, 400])
def test_events_that_are_not_plain_among_others(every: int) -> None:
    raws = [document(n, **({"@timestamp": "yesterday"} if n % every == 0 else {})) for n in range(4 * MOST_ODD)]
    runs = check(*raws)
    assert runs <= len(raws)
    assert every < 50 or runs < 30


def test_events_at_each_side_of_the_limits() -> None:
    for size in range(1020, 1030):
        check(document(message="x" * (size - len(document(message="")))), event_bytes=1024)
    for levels in range(1, 9):
        check(document(other=None)[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}", depth=6)
    for levels in range(120, 140):
        check(document()[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}", depth=200)
    for size in (16_000, 16_384, 16_385, 70_000):
        check(document(), document(message="x" * (size - len(document(message="")))), document(), event_bytes=100_000)


def test_origins_that_are_too_long_to_keep() -> None:
    check(*(document(n, fields={"f": "x" * size}) for n, size in enumerate((1, 1500, 1999, 2100, 9000, 1))))


def test_a_bug_in_the_core_is_an_exception() -> None:
    """It unwinds: the frame is spoiled, and the process lives."""
    assert native.NATIVE is not None
    frame = json_frame(1, document())
    with pytest.raises(ValueError, match="tuple"):
        native.NATIVE.documents(lambda key, raw: (), b"u." + b"0" * 24, (1 << 20, 64), frame, 0, 1)  # type: ignore[arg-type,return-value]
    with pytest.raises(RuntimeError):
        native.NATIVE.documents(lambda key, raw: None, b"too short", (1 << 20, 64), frame, 0, 1)
