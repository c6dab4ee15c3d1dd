"""A reject carries its message's option, so that it can be decoded again; a long one only once."""

from __future__ import annotations

import json

import msgpack
import pytest
from headrace_common.record.event import Reject
from headrace_common.session.interface import Peer
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSettings


def rejects(option: dict) -> list[Reject]:
    settings = ForwardSettings()
    session = ForwardSession(Peer("192.0.2.1", 1, "192.0.2.1"), settings.limits, settings.forward)
    session.receive(msgpack.packb(["t", [1, 2, 3], option]), 1_800_000_000_000)
    return [part for frame in session.frames() for part in frame.parts() if isinstance(part, Reject)]


@pytest.mark.parametrize(("filler", "told"), [(100, 3), (10_000, 1)])
def test_a_long_option_goes_with_the_first_reject_only(filler, told):
    option = {"chunk": "c", "filler": "x" * filler}
    found = [json.loads(reject.attributes) for reject in rejects(option)]
    assert [one["index"] for one in found] == [0, 1, 2]
    assert [one.get("option") for one in found] == [option] * told + [None] * (3 - told)
    assert all(one["tag"] == "t" and one["chunk"] == "c" for one in found)
