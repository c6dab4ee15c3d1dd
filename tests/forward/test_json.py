"""Connections that speak JSON: framing, times, what is kept byte for byte, limits."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_forward.json_form import JsonDecoder
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forward.driving import Outcome, drive, every_way
from tests.tiers import examples

SECOND = 1_700_000_000


def one(text: str | bytes, **limits: Any) -> Outcome:
    return every_way(text if isinstance(text, bytes) else text.encode(), **limits)


@pytest.mark.parametrize("time", ["1e999999999", "-1e30", "true", "{}", "999999999999999"])
def test_what_is_no_time_is_quarantined_and_acknowledged(time: str) -> None:
    outcome = one(f'["t", {time}, {{"m": 1}}, {{"chunk": 7}}]')
    (reject,) = outcome.rejects
    assert reject.reason.value == "bad_time"
    assert orjson.loads(reject.attributes)["tag"] == "t"
    assert json.loads(reject.raw)[1] == {"m": 1}
    assert outcome.replies == [b'{"ack":7}']


def test_one_bad_entry_leaves_the_others() -> None:
    outcome = one('["t", [[1, {"a": 1}], [1, "x"], 5, [1, {}, 3], [2, {"b": 2}]], {"chunk": "c", "size": 5}]')
    parts = [part.reason.value if part in outcome.rejects else part.record for part in outcome.flat]
    assert parts == [{"a": 1}, "bad_record", "bad_record", "bad_record", {"b": 2}]
    assert [reject.raw for reject in outcome.rejects] == [b'[1, "x"]', b"5", b"[1, {}, 3]"]
    assert outcome.replies == [b'{"ack":"c"}']


@pytest.mark.parametrize(
    ("text", "reason", "reply"),
    [
        ('["t", "AAAA", {"chunk": "c"}]', "bad_message", True),
        ('["t"]', "bad_message", False),
        ("[]", "bad_message", False),
        ('["t", 1]', "bad_message", False),
        ('["t", 1, {}, 5]', "bad_message", False),
        ('["t", 1, {}, {"a": %s}]' % ("[" * 65 + "]" * 65), "bad_message", False),
    ],
)
def test_what_makes_no_sense_is_quarantined_whole(text: str, reason: str, reply: bool) -> None:
    outcome = one(text)
    (reject,) = outcome.rejects
    assert (reject.reason.value, reject.raw) == (reason, text.encode())
    assert outcome.replies == ([b'{"ack":"c"}'] if reply else [])
    assert outcome.error is None


@pytest.mark.parametrize("tag", ["5", "null", '{"a": 1}'])
def test_a_tag_is_a_text(tag: str) -> None:
    assert [event.tag for event in one('["", 1, {}]').events] == ["-"]
    assert [reject.reason.value for reject in one(f"[{tag}, 1, {{}}]").rejects] == ["bad_message"]


def test_values_follow_one_another_with_heartbeats_between() -> None:
    outcome = one('["t",1,{"n":1}]["t",1,{"n":2}]\r\n null\tnull["t",1,{"n":3}] ')
    assert [event.record["n"] for event in outcome.events] == [1, 2, 3]
    assert not outcome.partial
    assert outcome.unacknowledgeable


@pytest.mark.parametrize(
    "text",
    ["{}", '["t",1,{}]{"a":1}', '["t",1,{}]5', "[}", '["t",1,{"m":tru}]', "[1,]", "[nul]", '["t",1,{"m":"\\ud800"}]'],
)
def test_what_cannot_be_trusted_closes(text: str) -> None:
    assert one(text).error is not None


def test_a_peer_may_end_between_values_but_not_within_one() -> None:
    assert drive([b'["t",1,{}] ']).error is None
    for end in range(1, 10):
        assert drive([b'["t",1,{}]'[:end]]).error is not None


def test_the_depth_limit_on_both_sides() -> None:
    def nested(levels: int) -> str:
        return f'["t", 1, {{"m": {"[" * (levels - 1)}"]]["{"]" * (levels - 1)}}}, {{"chunk": "c"}}]'

    assert len(one(nested(64)).events) == 1
    outcome = one(nested(65))
    assert [reject.reason.value for reject in outcome.rejects] == ["too_deep"]
    assert outcome.replies == [b'{"ack":"c"}']
    beyond = drive([nested(10_000).encode()])
    assert beyond.error is not None
    assert beyond.error.limit == "LIMITS__DEPTH"


def test_more_elements_than_there_should_be_are_skipped() -> None:
    outcome = one('["t", 1, {}, {"chunk": "c"}, 5, 6, ' + ",".join("7" * 1000) + "]")
    assert len(outcome.events) == 1
    assert outcome.replies == [b'{"ack":"c"}']


@given(
    st.lists(st.sampled_from(["[", "]", "{", "}", '"', "\\", ",", "x", "[[[[[[[[[", "]]]]]]]]]", '"]"']), max_size=80),
    st.integers(1, 9),
)
@settings(max_examples=examples(2000))
def test_framing_is_that_of_brackets_outside_of_texts(pieces: list[str], step: int) -> None:
    """Against the plainest reader there can be."""
    text = "[" + "".join(pieces)
    depth, inside, escaped, end = 0, False, False, None
    for at, char in enumerate(text):
        if inside:
            if escaped or char == "\\":
                escaped = not escaped
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
            if depth == 0:
                end = at + 1
                break
    for size in (step, len(text)):
        decoder, found = JsonDecoder(1 << 20), b""
        try:
            for at in range(0, len(text), size):
                for message in decoder.receive(text[at : at + size].encode()):
                    found = found or message.raw
        except ProtocolError as error:
            assert str(error).startswith(("not JSON", "neither"))  # noqa: PT017
            continue
        assert found == b"" or found.decode() == text[:end]
        assert (end is None) or found


def test_of_more_entries_than_allowed_the_rest_is_kept() -> None:
    outcome = one('["t", [[1, {}], [2, {}], [3, {}], [4, {}]], {"chunk": "c"}]', frame_events=2)
    assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [
        ("too_many_events", b"[[3, {}], [4, {}]]")
    ]
    assert (len(outcome.events), outcome.replies) == (2, [b'{"ack":"c"}'])
