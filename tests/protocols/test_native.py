"""The native core does what clients send, in few calls. That it makes the same as Python, each `drive` compares on any input."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

import pytest
from headrace_common.record import native
from headrace_common.record.event import Envelope, Reject
from headrace_common.record.native import MOST_ODD
from headrace_common.session.interface import ByteSession
from headrace_courier.wire import jdat
from headrace_forward.entries.ids import NAMES_NOTHING
from headrace_forward.wire import EventTime
from headrace_lumberjack.wire import compressed, json_frame, window

from tests.courier import driving as courier
from tests.forward.driving import NOW_MS, TIME, Mode, drive, encode, event_time, pack, session
from tests.fuzz.chance import flat
from tests.fuzz.subjects import made
from tests.lumberjack import driving as lumberjack
from tests.native import calls, needs_native, using
from tests.tiers import sized

pytestmark = needs_native

SESSIONS: dict[str, Callable[[], ByteSession]] = {"lumberjack": lumberjack.session, "courier": courier.session}
PIECES = Envelope("forward", "/forward/test", "t").pieces


def beats(*documents: bytes) -> bytes:
    return window(len(documents)) + b"".join(json_frame(1 + n, each) for n, each in enumerate(documents))


def jdata(*events: bytes) -> bytes:
    return jdat(courier.NONCE, events)


DOCUMENTS = [lumberjack.document(n, message='a "quoted" line\n') for n in range(50)]
HOSTS = [lumberjack.document(n, host={"name": f"h{n % 3}"}) for n in range(50)]
FEW = lumberjack.document(log=None, agent=None, message=None), lumberjack.document(host="h", tags=["t"])
LINES = courier.numbered
RECORDS = [
    pack([TIME, {"message": "x", "n": {"k": [1, None, True, 1.5]}}]),
    pack([1_700_000_000, {"log": b"from in_tail"}]),
    pack([1_700_000_000.25, {}]),
    pack([[event_time(1_700_000_000, 0), {}], {"é": "ü"}]),
]
IN_C = window(500) + compressed(b"".join(json_frame(1 + n, lumberjack.document(n)) for n in range(500)))
CALLS: list[tuple[Callable[[], ByteSession], bytes, int]] = [
    (lumberjack.session, beats(*DOCUMENTS), 1),
    (lumberjack.session, beats(*DOCUMENTS, *HOSTS), 1),
    (lumberjack.session, beats(*FEW), 1),
    (lumberjack.session, IN_C, 9),
    (courier.session, jdata(*LINES(100)), 1),
    (courier.session, jdata(*LINES(2000)), 9),
    (courier.session, jdata(*LINES(50), *LINES(50, host="h", type="t")), 1),
    (session, pack(["t", b"".join(RECORDS * 25), {"chunk": "c"}]), 1),
]


def test_what_clients_send_is_made_in_few_calls() -> None:
    for made_by, data, most in CALLS:
        assert calls(made_by(), data) <= most


@pytest.mark.parametrize("every", [1, 2, 3, 50, 400])
@pytest.mark.parametrize("protocol", ["lumberjack", "courier"])
def test_events_that_are_not_plain_among_others(protocol: str, every: int) -> None:
    count, driven = 4 * MOST_ODD, SESSIONS[protocol]()
    if protocol == "courier":
        events = LINES(count)
        events[::every] = [b"[]"] * len(events[::every])
        data = jdata(*events)
        found = courier.drive([data]).flat
    else:
        odd = {"@timestamp": "yesterday"}
        data = beats(*(lumberjack.document(n, **({} if n % every else odd)) for n in range(count)))
        found = lumberjack.drive([data]).flat
    assert len(found) == count
    assert calls(driven, data) < 30 or every < 50


# Forward


def test_a_bug_in_the_core_is_an_exception() -> None:
    """It unwinds: the frame is spoiled, and the process lives."""
    assert native.NATIVE is not None
    with pytest.raises(RuntimeError):
        native.NATIVE.entries(PIECES, b"", b"too short", b"", (1 << 20, 64), b"\x92\x01\x80", 0, 9)


def numbered(count: int) -> list[tuple[EventTime, dict[str, int]]]:
    return [(EventTime(1_700_000_000, 10**6 * (n % 2) + 1), {"n": n}) for n in range(count)]


@pytest.mark.parametrize(
    ("chunk", "precise", "whole_ms"),
    [
        ("c" * 25, True, True), ("c" * 24, True, False), ("0" * 32, True, False),
        *((chunk.decode(), False, False) for chunk in sorted(NAMES_NOTHING)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["Message", "Forward", "PackedForward"])
def test_a_later_message_is_made_as_it_arrives(mode: Mode, chunk: str, precise: bool, whole_ms: bool) -> None:
    """By its chunk, and whether the time of an event is a whole millisecond: then its id may depend on what the chunk names."""
    for nanoseconds, expected in ((1, precise), (10**6, whole_ms)):
        data = encode("tag", [(EventTime(1_700_000_000, nanoseconds), {"n": 1})], mode=mode, chunk=chunk)
        assert len(drive([data] * 3).flat) == 3
        with using("native"):
            driven = session()
            driven.receive(data, NOW_MS)
            list(next(driven.frames()).parts())  # so it knows the tag
            driven.receive(data, NOW_MS)
        assert bool(next(driven.frames()).made) is expected


def test_what_the_fuzzer_makes_behind_messages_of_its_tags() -> None:
    """With small limits as well. The fuzzer itself compares what comes of an input alone."""
    small = {
        "frame_bytes": 4096, "event_bytes": 1024, "inflated_bytes": 8192, "frame_events": 20, "depth": 8, "tag_bytes": 64,
        "chunk_bytes": 64, "option_bytes": 1024,
    }  # fmt: skip
    for number in range(sized(100, 1000, 5000)):
        _, sent, _ = made("forward", f"native-{number}")
        drive([flat(sent)] * 3, **(small if number % 2 else {}))


def many(count: int, odd: int) -> Iterator[bytes]:
    for number in range(count):
        bad = float("nan") if number % odd == odd - 1 else number
        yield b"\x92" + pack(TIME) + pack({"n": bad, "m": "x" * (number % 90), "b": b"bin"})


@pytest.mark.parametrize("odd", [1, 3, 257, 10_000])
@pytest.mark.parametrize("wrap", [None, bytes, gzip.compress], ids=["listed", "packed", "gzip"])
def test_large_frames_with_odd_entries_among_them(odd: int, wrap: Callable[[bytes], bytes] | None) -> None:
    entries = [*many(2_500, odd)]
    body = b"".join(entries)
    second = pack(wrap(body)) if wrap else b"\xdc" + len(entries).to_bytes(2, "big") + body
    data = b"\x93\xa1t" + second + pack({"chunk": "c"})
    assert len(drive([data]).flat) == len(entries)
    *_, last = few = drive([data], frame_events=1_000).flat
    assert len(few) == 1_001
    assert isinstance(last, Reject)


@pytest.mark.parametrize("core", ["native", "python"])
def test_a_session_says_whether_only_frames_are_new(core: str) -> None:
    """Then nothing else of it is looked at."""
    with using(core):
        driven = session()

        def alone(data: bytes) -> bool:
            before = driven.status()
            said = driven.receive(data, NOW_MS)
            for frame in driven.frames():
                list(frame.parts())
            if said:
                assert driven.status() == before
                assert not driven.outgoing()
            return bool(said)

        data = encode("tag", numbered(3), chunk="abc")
        other, unasked = encode("other", numbered(3), chunk="abc"), encode("tag", numbered(3))
        assert [alone(data) for _ in range(3)] == [False, True, True]
        assert [alone(each) for each in (other, data + data, b"\xc0")] == [True, True, True]
        assert [alone(each) for each in (data[:9], data[9:], unasked, data[:9])] == [False] * 4
