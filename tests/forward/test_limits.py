"""What hostile input may cost. Limits on both sides are in `tests/fuzz/truth/limits.py`."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import Any

import pytest
from backports import zstd

from tests.driving import feed, traced
from tests.forward.driving import NOW_MS, TIME, Outcome, ack, drive, every_way, message, pack, session
from tests.tiers import sized

KIB = 1024
MIB = 1024 * KIB
ENTRY = b"\x92" + pack(TIME) + pack({"m": 1})


def packed(body: bytes, **option: Any) -> bytes:
    return pack(["t", body, {"chunk": "c", **option}])


def listed(entries: list[bytes], option: Any = None) -> bytes:
    header = b"\xdd" + len(entries).to_bytes(4, "big")
    return b"\x93" + pack("t") + header + b"".join(entries) + pack(option or {"chunk": "c"})


def zipped(body: bytes) -> bytes:
    return packed(gzip.compress(body, mtime=0), compressed="gzip")


def reasons(outcome: Outcome) -> list[str]:
    return [reject.reason.value for reject in outcome.rejects]


class TestFrameBytes:
    """LIMITS__FRAME_BYTES: the stream cannot be followed beyond it, so it is closed."""

    LIMIT = 4 * KIB

    @pytest.mark.parametrize("kind", [b"\xdd", b"\xc6", b"\xdf"])
    @pytest.mark.parametrize("start", [b"", b"\x93\xa1t", b"\x94\xa1t\x01\x81\xa1a"])
    def test_a_length_that_lies_only_waits(self, start: bytes, kind: bytes) -> None:
        """It costs what arrived, until that is too much."""
        if start + kind in (b"\xc6", b"\xdf"):
            return
        driven = session(frame_bytes=self.LIMIT, event_bytes=self.LIMIT)
        driven.receive(start + kind + b"\xff\xff\xff\xff", NOW_MS)
        assert driven.status().partial_bytes < 100
        with pytest.raises(Exception, match="a message is too large"):
            driven.receive(b"\x90" * self.LIMIT, NOW_MS)

    def test_an_ext_of_which_msgpack_overflows_the_length(self) -> None:
        """Ext 32 of 2**32 - 1 bytes and a type: msgpack takes it for empty, so what follows is out of step."""
        outcome = every_way(message(b"\x81\xa1a\xc9\xff\xff\xff\xff"))
        assert outcome.error is not None
        assert outcome.parts == []


class TestEventBytes:
    def test_an_entry_that_is_larger_as_it_arrives_is_not_even_decoded(self) -> None:
        """A megabyte of msgpack can be sixty of Python's objects."""
        size = sized(256 * KIB, 4 * MIB, 4 * MIB)
        body = b"\x92" + pack(TIME) + b"\x81\xa1a\xdd" + size.to_bytes(4, "big") + b"\x90" * size
        for form in (packed(ENTRY + body + ENTRY), listed([ENTRY, body, ENTRY]), zipped(ENTRY + body + ENTRY)):
            (outcome, peak) = measured(form, ratio=10_000, event_bytes=size // 4)
            assert [len(frame) for frame in outcome.parts] == [3]
            assert reasons(outcome) == ["oversized"]
            assert peak < 12 * len(form) + 10 * size


class TestInflatedBytes:
    """LIMITS__INFLATED_BYTES and LIMITS__RATIO: the message goes to quarantine as it came, and is acknowledged."""

    def test_what_does_not_inflate_is_quarantined_whole(self) -> None:
        payload = gzip.compress(ENTRY * 50)
        bad = [
            payload[:-1],
            payload[:-9],
            payload + b"x",
            payload[:20] + b"\xff\xff" + payload[22:],
            b"\x1f\x8b",
            payload + b"\0\0x",
            zstd.compress(ENTRY * 50)[:-3],
            zstd.compress(ENTRY * 50) + b"junk, junk",
            payload + bytes(9),
        ]
        for body in bad:
            data = packed(body, compressed="gzip")
            outcome = every_way(data)
            assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [("compression", data)]
            assert outcome.events == []
            assert outcome.replies == [ack("c")]
        assert reasons(every_way(packed(b"", compressed="gzip"))) == []


class TestNesting:
    def test_ten_thousand_levels_in_a_payload_are_quarantined(self) -> None:
        bomb = b"\x92\x01" + b"\x91" * 10_000
        for form in (packed(ENTRY + bomb), zipped(ENTRY + bomb)):
            outcome = every_way(form)
            assert reasons(outcome) == ["bad_encoding"]
            assert outcome.rejects[0].raw == bomb
            assert len(outcome.events) == 1
            assert outcome.replies == [ack("c")]

    @pytest.mark.parametrize("start", [b"\xdd", b"\x92\x01\xdf", b"\x92\x01\x81\xa1k\xdd", b"\x92\x01\x81\xa1k\xdb"])
    def test_a_length_of_four_gigabytes_in_a_payload_is_quarantined(self, start: bytes) -> None:
        rest = start + b"\xff\xff\xff\xffrest"
        outcome, peak = measured(packed(ENTRY + rest))
        assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [("bad_encoding", rest)]
        assert len(outcome.events) == 1
        assert peak < MIB


class TestMessageElements:
    def test_more_than_any_client_sends_close(self) -> None:
        """Each would cost a place in a list: megabytes of nil would be a gigabyte of them."""
        outcome = every_way(b"\xdc\0\x11" + b"\xc0" * 17)
        assert outcome.error is not None
        assert "17 elements" in str(outcome.error)


def measured(data: bytes, **limits: Any) -> tuple[Outcome, int]:
    """The outcome, and the most memory that was used beyond the input (bytes)."""
    with traced():
        outcome = drive([data], **limits)
        return outcome, tracemalloc.get_traced_memory()[1]


class TestMemory:
    """What it costs follows the bytes that arrived."""

    def test_of_a_fault_is_given_back(self) -> None:
        """The connection may live on while earlier messages wait for Kafka."""
        driven = session(frame_bytes=2 * MIB, event_bytes=MIB)
        data = b"\x94\xa1t\x01\x81\xa1a\xc6\x00\xff\xff\xff" + b"x" * 3 * MIB
        with traced():
            with pytest.raises(Exception, match="too large"):
                feed(driven, data)
            assert driven.status().partial_bytes == 0
            assert tracemalloc.get_traced_memory()[0] < 256 * KIB


class TestPauses:
    """Long work is cut: a pause at least every MiB before the first part."""

    def test_inflating_and_hashing(self) -> None:
        entry = b"\x92" + pack(TIME) + pack({"m": "x" * 900_000})
        driven = session(ratio=100_000)
        driven.receive(zipped(entry * 8), NOW_MS)
        (frame,) = driven.frames()
        pauses: list[int] = []
        for run in frame.runs():
            if not isinstance(run, int):
                break
            pauses.append(run)
        assert sum(pauses) == 8 * len(entry)
        assert max(pauses) <= MIB
        assert len(pauses) >= 2 * (8 * len(entry) // MIB)

    def test_a_slice_of_entries_is_bounded_in_bytes(self) -> None:
        """Some hundred entries of a megabyte each are not decoded at once."""
        entry = b"\x92" + pack(TIME) + pack({"m": "x" * 500_000})
        for form in (packed(entry * 20), listed([entry] * 20)):
            driven = session()
            feed(driven, form)
            (frame,) = driven.frames()
            with traced():
                runs = iter(frame.runs())
                while isinstance(next(runs), int):
                    pass
                first = tracemalloc.get_traced_memory()[1]
            assert first < 2 * len(form) + 4 * MIB  # the payload, twice while it is cut out, and little more
