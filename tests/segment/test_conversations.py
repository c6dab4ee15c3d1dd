"""The recorded conversations of the original dialect: exactly the recorded replies."""

from __future__ import annotations

import random

import pytest

from tests.driving import at_random, one_by_one
from tests.segment.instant import drive
from tests.segment.recorded import CONVERSATIONS


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_recorded_replies(name: str) -> None:
    data, replies = CONVERSATIONS[name]["data"], CONVERSATIONS[name]["replies"]
    whole = drive([data])
    assert whole.replies.hex() == replies.hex()
    assert (whole.error is not None) == (name in ("conv08_unknown_type", "conv09_end_mismatch"))
    assert drive(one_by_one(data)).comparable() == whole.comparable()
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed))).comparable() == whole.comparable()


def test_what_they_publish() -> None:
    outcome = drive([CONVERSATIONS["conv05_resend"]["data"]])
    assert [(event.subject, event.value) for event in outcome.events] == [("c5", b"hello"), ("c5", b"world!")]
    (first, second) = outcome.events
    assert first.headers["content-type"] == b"application/octet-stream"
    assert first.source == "/segment/192.0.2.7"
    assert first.attributes == {"writer": "00112233445566778899aabbccddeeff", "level": 13, "time": "received"}
    assert second.attributes["level"] == 27
