"""What a payload may be: gzip or zstd in several pieces, whatever the option says; metadata."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from backports import zstd
from headrace_common.session.inflate import LAST_WINDOW

from tests.driving import BARREN_GZIP
from tests.forward.driving import NOW_MS, TIME, ack, every_way, message, pack, session

ENTRIES = [pack([TIME, {"n": n}]) for n in range(6)]
CHUNK = "Q0hVTkstd2l0aC1uZXdsaW5l\n"
"""fluentd's: base64 with its line end."""


def str32(payload: bytes) -> bytes:
    """How fluentd packs entries, whatever they are: a msgpack str of 32-bit length, mostly no UTF-8."""
    return b"\xdb" + len(payload).to_bytes(4, "big") + payload


def fluentd(payload: bytes, **option: Any) -> bytes:
    return b"\x93" + pack("t") + str32(payload) + pack({"size": 6, "chunk": CHUNK, **option})


def pieces(compress: Any) -> bytes:
    """Entries compressed in three pieces, one of them cutting an entry in two."""
    plain = b"".join(ENTRIES)
    return compress(plain[:5]) + compress(plain[5:40]) + compress(plain[40:])


PLAIN = b"".join(ENTRIES)
FORMS = {
    "text": (PLAIN, "text"),
    "gzip": (gzip.compress(PLAIN), "gzip"),
    "several gzip members": (pieces(gzip.compress), "gzip"),
    "a gzip member for each entry": (b"".join(map(gzip.compress, ENTRIES)), "gzip"),
    "empty gzip members": (gzip.compress(b"") + gzip.compress(PLAIN) + gzip.compress(b""), "gzip"),
    "zstd": (zstd.compress(PLAIN), "zstd"),
    "several zstd frames": (pieces(zstd.compress), "zstd"),
    "gzip that says zstd": (gzip.compress(PLAIN), "zstd"),
    "zstd that says gzip": (zstd.compress(PLAIN), "gzip"),
    "gzip that says text": (gzip.compress(PLAIN), "text"),
    "gzip that says something": (gzip.compress(PLAIN), "br"),
    "entries that say gzip": (PLAIN, "gzip"),
    "entries that say something": (PLAIN, "br"),
}


@pytest.mark.parametrize("name", FORMS)
def test_compression_is_what_the_first_bytes_say(name: str) -> None:
    payload, claim = FORMS[name]
    outcome = every_way(fluentd(payload, compressed=claim))
    assert [event.record["n"] for event in outcome.events] == list(range(6))
    assert outcome.rejects == []
    assert outcome.replies == [ack(CHUNK)]
    assert all(event.attributes == {"chunk": CHUNK} and event.id.startswith("d.") for event in outcome.events)


def test_a_payload_that_gives_nothing_is_inflated_in_steps() -> None:
    """16 MiB of blocks without output held the event loop for more than five seconds."""
    driven = session()
    driven.receive(fluentd(BARREN_GZIP), NOW_MS)
    (frame,) = driven.frames()
    pauses = list(frame.runs())
    assert len(pauses) >= len(BARREN_GZIP) / LAST_WINDOW
    assert not any(pauses)


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_of_many_members_what_came_goes_to_quarantine(compress: Any) -> None:
    """A hundred thousand empty ones in a message of a megabyte held the event loop for seconds."""
    data = fluentd(compress(b"") * 1000, compressed="gzip")
    outcome = every_way(data)
    assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [("compression", data)]
    assert outcome.replies == [ack(CHUNK)]


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_compressed_twice_is_no_entries(compress: Any) -> None:
    outcome = every_way(fluentd(compress(compress(PLAIN)), compressed="gzip"))
    assert [reject.reason.value for reject in outcome.rejects] == ["bad_encoding"]
    assert outcome.replies == [ack(CHUNK)]


@pytest.mark.parametrize("number", [1, 2, 3, -1])
def test_metrics_and_traces_are_no_logs(number: int) -> None:
    option = {"fluent_signal": number, "chunk": CHUNK}
    for elements in (["m", b"\x82\xa4meta\x80\xa7metrics\x90"], ["m", [[1, {"a": 1}]]], ["m", 1, {"a": 1}]):
        data = pack([*elements, option])
        outcome = every_way(data)
        assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [("bad_message", data)]
        assert (outcome.events, outcome.replies) == ([], [ack(CHUNK)])


def test_the_metadata_of_a_message() -> None:
    """Fluent Bit in Message mode puts it into the option; an entry's own comes first."""
    option = {"chunk": "c", "metadata": {"otlp": {"severity": 9}, "b": b"\xff"}}
    (event,) = every_way(message(pack({"m": 1}), option=option)).events
    assert event.attributes["metadata"] == {"otlp": {"severity": 9}, "b": {"$bin": "/w=="}}
    (own,) = every_way(pack(["t", [[[TIME, {"own": 1}], {"m": 1}]], option])).events
    assert own.attributes["metadata"] == {"own": 1}
