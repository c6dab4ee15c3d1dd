"""Connections that speak JSON: framing, and what closes. What messages become is in `test_edge.py`."""

from __future__ import annotations

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_forward.json_form import DEEPEST, JsonDecoder
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forward.driving import drive, every_way
from tests.tiers import examples


@pytest.mark.parametrize(
    "text",
    ["{}", '["t",1,{}]{"a":1}', '["t",1,{}]5', "[}", '["t",1,{"m":tru}]', "[1,]", "[nul]", '["t",1,{"m":"\\ud800"}]'],
)
def test_what_cannot_be_trusted_closes(text: str) -> None:
    assert every_way(text.encode()).error is not None


def test_far_too_many_levels_close() -> None:
    for over in (0, 1, 10_000):
        levels = DEEPEST - len("[{") + over
        error = drive([b'["t",1,{"m":%b%b}]' % (b"[" * levels, b"]" * levels)]).error
        assert (error and error.limit) == ("LIMITS__DEPTH" if over else None)


def test_a_peer_may_end_between_values_but_not_within_one() -> None:
    assert drive([b'["t",1,{}] ']).error is None
    for end in range(1, 10):
        assert drive([b'["t",1,{}]'[:end]]).error is not None


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
    outcome = every_way(b'["t", [[1, {}], [2, {}], [3, {}], [4, {}]], {"chunk": "c"}]', frame_events=2)
    assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [
        ("too_many_events", b"[[3, {}], [4, {}]]")
    ]
    assert (len(outcome.events), outcome.replies) == (2, [b'{"ack":"c"}'])
