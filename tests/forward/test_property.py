"""The house invariant: any bytes give events, replies or `ProtocolError`, nothing else, and the same whole and split."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import msgpack
from headrace_forward.wire import EventTime, encode
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forward.driving import NOW_MS, TIME, at_random, drive, pack, session
from tests.forward.msgpacks import records, unusual, values
from tests.tiers import examples

VECTORS = Path(__file__).parent / "vectors"
SMALL = {
    "frame_bytes": 4096,
    "event_bytes": 1024,
    "inflated_bytes": 8192,
    "frame_events": 20,
    "depth": 8,
    "tag_bytes": 64,
    "chunk_bytes": 64,
    "option_bytes": 1024,
}
"""Limits that mutations reach."""


def _valid() -> list[bytes]:
    """Frames of every mode and from every client."""
    entries: list[tuple[Any, dict[str, Any]]] = [
        (EventTime(1_700_000_000, 7), {"m": "hello", "n": {"k": [1, None, True]}}),
        (1_700_000_000, {"f": 1.5, "b": b"\xff"}),
    ]
    modes = ("Message", "Forward", "PackedForward", "CompressedPackedForward")
    made = [encode("app.log", entries, mode=mode, chunk="c1") for mode in modes]
    body = b"".join(b"\x92" + pack(TIME) + pack({"n": n}) for n in range(3))
    members = b"".join(gzip.compress(body[at : at + 9], mtime=0) for at in range(0, len(body), 9))
    fluentd = b"\xdb" + len(members).to_bytes(4, "big") + members
    made.append(b"\x93" + pack("t") + fluentd + pack({"chunk": "x" * 24 + "\n", "compressed": "gzip"}))
    return made + [path.read_bytes() for path in sorted(VECTORS.rglob("*.bin"))]


VALID = _valid()
INTERESTING = bytes.fromhex(
    "00 7f 80 81 8f 90 91 92 93 94 9f a0 a5 bf c0 c1 c2 c4 c6 c7 c9 ca cb cf d3 d4 d6 d7 d9 db dc dd de df ff 1f 8b 28"
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One to three valid frames with up to six flips, cuts, insertions, splices and edited lengths."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=3))))
    chance = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(chance.randint(0, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(data):
                data[at] = chance.choice(INTERESTING)
            case 2:
                del data[at : at + chance.choice((1, 2, 4, 50))]
            case 3:
                data[at:at] = bytes(chance.choices(INTERESTING, k=chance.randint(1, 8)))
            case 4:
                other = chance.choice(VALID)
                data[at:] = other[chance.randrange(len(other) + 1) :]
            case 5:
                data[at : at + 4] = chance.choice((0, 1, 255, 65_535, 2**31, 2**32 - 1, len(data))).to_bytes(4, "big")
            case 6:
                size = chance.randint(1, 40)
                data[at:at] = data[at : at + size] * chance.randint(1, 30)
    return bytes(data)


@st.composite
def shaped(draw: st.DrawFn) -> bytes:
    """A message whose parts are of the right kinds but may hold anything."""
    entry = st.tuples(unusual | values, records | values).map(lambda pair: b"\x92" + pair[0] + pair[1])
    listed = st.lists(entry | values, max_size=4)
    body = draw(listed.map(b"".join))
    second = draw(st.sampled_from(["packed", "gzip", "listed", "time"]))
    if second == "listed":
        entries = draw(listed)
        middle = bytes((0x90 | len(entries),)) + b"".join(entries)
    elif second == "time":
        middle = draw(unusual) + draw(records | values)
    else:
        middle = pack(gzip.compress(body, 1, mtime=0) if second == "gzip" else body)
    option = draw(
        st.just(b"\x80") | st.just(pack({"chunk": "c"})) | unusual.map(lambda chunk: b"\x81\xa5chunk" + chunk) | values
    )
    tag = draw(st.just(pack("t")) | unusual | values)
    return b"\x94" + tag + middle + option if second == "time" else b"\x93" + tag + middle + option


def said(reply: bytes) -> dict[str, Any]:
    """A reply, in the connection's own codec."""
    if reply.startswith(b"{"):
        return json.loads(reply)
    return msgpack.unpackb(reply, unicode_errors="surrogateescape")


@settings(max_examples=examples(500))
@given(mutated(), st.integers(0, 2**32))
def test_mutated_frames_at_small_limits(data: bytes, seed: int) -> None:
    """As the fuzzer does at the usual limits. Which fault comes first depends on how much has arrived; that there is one, not."""
    whole, split = drive([data], **SMALL), drive(at_random(data, random.Random(seed)), **SMALL)
    assert all(part.raw for part in whole.rejects)
    assert len(whole.replies) <= len(whole.parts)
    assert all(said(reply).keys() == {"ack"} for reply in whole.replies)
    same = slice(2) if whole.error and split.error else slice(None)
    assert split.comparable()[same] == whole.comparable()[same]


@settings(max_examples=examples(200))
@given(mutated() | shaped())
def test_every_frame_can_be_spoiled_and_comes_back_whole(data: bytes) -> None:
    """What the pump falls back on: it must not raise, and it keeps every byte."""
    driven = session()
    try:
        driven.receive(data, NOW_MS)
    except Exception as error:
        assert type(error).__name__ == "ProtocolError"  # noqa: PT017  (the frames before it are looked at below)
    for frame in driven.frames():
        assert frame.spoiled("a test").raw in data
