"""Any frames give events, rejects or a 400, nothing else; and an answer means that it is stored."""

from __future__ import annotations

import random
from typing import Any

from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_common.session.interface import Message
from headrace_logjam.wire import META, NOBODY, PING, TAG, Meta, compress, encode_meta, split
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.driving import NOW_MS, parts_of
from tests.logjam.driving import ADDRESS, APP_ENV, HOST, TOPIC, driven
from tests.tiers import examples

LIMITS = {"event_bytes": 1500, "inflated_bytes": 3000, "frame_bytes": 2048, "depth": 5}
BODIES = st.one_of(
    st.sampled_from(
        [b"{}", b"[]", b"", b"{", b'{"uuid":"1"}', b'{"started_ms":1,"request_id":"x"}', b"[" * 9 + b"]" * 9]
    ),
    st.integers(0, 4000).map(lambda size: b'{"m":"' + b"x" * size + b'"}'),
    st.binary(max_size=60),
)
METHODS = st.sampled_from([0, 1, 2, 3])
METAS = st.one_of(
    st.builds(encode_meta, st.builds(Meta, st.integers(0, 255), *[st.integers(0, 2**32 - 1)] * 3)),
    st.binary(max_size=26),
    st.builds(META.pack, st.just(TAG), *[st.integers(0, 3)] * 2, st.just(0), *[st.integers(0, 2**64 - 1)] * 2),
)
NAMES = st.sampled_from([APP_ENV, b"cafe-preview", PING, b"heartbeat", b"", b"a-" * 600, b"\xff-"])


@st.composite
def events(draw: Any) -> list[bytes]:
    method = draw(METHODS)
    return [
        draw(st.sampled_from([APP_ENV, b"cafe-preview"])),
        TOPIC,
        compress(method, draw(BODIES)),
        encode_meta(Meta(method)),
    ]


MESSAGES = st.one_of(
    events(),
    st.tuples(NAMES, st.sampled_from([TOPIC, b"", b"mobile", b"other"]), BODIES, METAS).map(list),
    st.lists(st.binary(max_size=30), min_size=1, max_size=6),
)
SENT = st.lists(st.tuples(st.booleans(), st.integers(0, 2), MESSAGES, st.booleans()), min_size=1, max_size=12)


def damaged(frames: list[bytes], chance: random.Random) -> list[bytes]:
    found = [bytearray(frame) for frame in frames]
    for _ in range(chance.choice((0, 0, 1, 3))):
        frame = chance.choice(found)
        if frame:
            frame[chance.randrange(len(frame))] = chance.randrange(256)
    return [bytes(frame) for frame in found]


@settings(max_examples=examples(2000))
@given(SENT, st.booleans(), st.randoms(use_true_random=False))
def test_any_frames(sent: list[tuple[bool, int, list[bytes], bool]], answers: bool, chance: Any) -> None:
    """Frames are stored in any order, some in two steps and some never. What hangs or takes memory shows as well."""
    found = driven(answers=answers, **LIMITS)
    asked: dict[bytes, list[list[bytes]]] = {}
    wanted = 0
    for asks, number, frames, turn in sent:
        message = ([b""] if asks and answers else []) + damaged(frames, chance)
        route = bytes([number]) if answers else b""
        found.session.receive(Message(message, route, ADDRESS), NOW_MS)
        if answers and message and not message[0]:
            asked.setdefault(route, []).append(message[1:])
        wanted += 1
        if turn:
            found.turn()
    found.turn()
    found.hear()  # pings are answered before anything is stored
    chance.shuffle(found.frames)
    kept, lost = [], False
    for frame in found.frames:
        made = parts_of(frame, pauses=False)
        assert made
        kept += made
        fate = chance.random()
        if fate < 0.1:
            found.session.abandon(frame.ticket)
            lost = True
        else:
            if fate < 0.3:
                found.session.stored(frame.ticket, chance.randrange(len(made)), False)
                found.hear()
            found.session.stored(frame.ticket, len(made), True)
        found.hear()
    pings = sum(reply[2] == b"200 OK" for reply in found.replies)
    assert len(kept) + len(found.ignored) + pings == wanted or (lost and len(kept) <= wanted)
    for part in kept:
        if isinstance(part, Reject):
            assert part.reason in set(Reason) - {Reason.INTERNAL, Reason.REFUSED, Reason.TOO_MANY_EVENTS}
            split(part.raw)
        else:
            assert isinstance(part.json, dict)
    assert found.session.status().idle
    for route, messages in asked.items():
        heard = [reply[1:] for reply in found.replies if reply[0] == route]
        assert len(heard) <= len(messages)
        if not lost:
            assert len(heard) == len(messages)
            for frames, (name, answer, *more) in zip(messages, heard, strict=True):
                assert name == (frames[0] if frames and 0 < len(frames[0]) <= 1024 else NOBODY)
                assert (answer, more) in ((b"202 Accepted", []), (b"400 Bad Request", []), (b"200 OK", [HOST]))
    assert {reply[0] for reply in found.replies} <= asked.keys()
    found.turn(10)
    assert found.session.deadline() is None
    assert found.session._questions == {}
