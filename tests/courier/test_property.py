"""Any bytes give events, replies or a protocol error, nothing else; however they are split."""

from __future__ import annotations

import random
from typing import Any

from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_courier.wire import HEADER, PING, evnt, jdat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.courier.driving import Outcome, content, drive, payload
from tests.tiers import examples

LIMITS = {
    "frame_bytes": 4096,
    "event_bytes": 1024,
    "inflated_bytes": 16_384,
    "frame_events": 20,
    "depth": 5,
    "connection_budget": 65_536,
    "process_budget": 131_072,
}

nonces = st.binary(min_size=16, max_size=16)
events = st.lists(
    st.one_of(
        st.sampled_from(
            [b"{}", b'{"a":[1,{"b":"\\u00fc"}]}', b"[]", b"", b"{", b'{"@timestamp":"2026-11-21T09:59:34Z"}']
        ),
        st.binary(max_size=40),
        st.integers(0, 2000).map(lambda size: b'{"m":"' + b"x" * size + b'"}'),
        st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3).map(lambda value: repr(value).encode()),
    ),
    max_size=25,
)
types = st.sampled_from([b"HELO", b"PING", b"PONG", b"VERS", b"ACKN", b"????", b"NEWS", b"JDAT", b"EVNT", b"\0\0\0\0"])
messages = st.one_of(
    st.builds(jdat, nonces, events),
    st.builds(evnt, nonces, events),
    st.just(PING),
    st.builds(lambda kind, body: HEADER.pack(kind, len(body)) + body, types, st.binary(max_size=64)),
    st.builds(HEADER.pack, types, st.sampled_from([0, 1, 32, 33, 4096, 4097, 0xFFFFFFFF])),
    st.builds(
        lambda body, kind, cut, more: payload(body, kind=kind, cut=cut, more=more),
        st.one_of(st.binary(max_size=60), events.map(content)),
        st.sampled_from([b"JDAT", b"EVNT"]),
        st.sampled_from([0, 0, 1, 5]),
        st.sampled_from([b"", b"", b"\0"]),
    ),
    st.binary(max_size=50),
)
conversations = st.lists(messages, max_size=6).map(b"".join)


def flipped(data: bytes, chance: random.Random) -> bytes:
    """With some bytes changed."""
    damaged = bytearray(data)
    for _ in range(chance.randint(0, 3) if damaged else 0):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def sound(outcome: Outcome) -> None:
    """Whatever came of it: every event of every payload is there once, in its place, or in quarantine."""
    assert len(outcome.acknowledged) == len(outcome.parts)
    for parts, (_, count) in zip(outcome.parts, outcome.acknowledged, strict=True):
        rejects = [part for part in parts if isinstance(part, Reject)]
        tails = [part for part in rejects if part.reason is Reason.TOO_MANY_EVENTS]
        assert (count == len(parts)) if not tails else (count > len(parts) - 1)
        assert len({part.id for part in parts}) == len(parts)
        assert all(part.reason is not Reason.INTERNAL for part in rejects)


def splits(data: bytes, chance: random.Random) -> list[bytes]:
    points = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 6)))
    return [data[a:b] for a, b in zip([0, *points], [*points, len(data)], strict=True)]


def test_a_stream_that_needs_a_dictionary_is_refused_however_it_is_split() -> None:
    data = b"EVNT" + b"\xff" * 4 + bytes(16) + b"x \0\0\0\0"
    whole = drive([data], **LIMITS)
    assert str(whole.error) == "does not inflate: it needs a dictionary"
    assert drive([data[at : at + 1] for at in range(len(data))], **LIMITS).comparable() == whole.comparable()


@settings(max_examples=examples(12_500))
@given(conversations, st.randoms(use_true_random=False))
def test_any_bytes(data: bytes, chance: Any) -> None:
    data = flipped(data, chance)
    whole = drive([data], **LIMITS)
    sound(whole)
    expected = whole.comparable()
    assert drive([data[at : at + 1] for at in range(len(data))], **LIMITS).comparable() == expected
    assert drive(splits(data, chance), **LIMITS).comparable() == expected
