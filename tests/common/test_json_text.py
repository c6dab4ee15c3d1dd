"""Long texts in pieces: wherever two of them meet, in an escape, a pair of surrogates or a letter."""

from __future__ import annotations

import json

import pytest
from headrace_common.record import json_text
from hypothesis import given
from hypothesis import strategies as st

LETTERS = ("a", "ü", "€", "\U0001f600", "\n", "\\", '"', "\x01", "\\u", "d83d", "ud83d")


@given(st.lists(st.sampled_from(LETTERS), max_size=60), st.booleans(), st.integers(13, 40))
def test_pieces_are_the_text(letters: list[str], ascii_only: bool, size: int) -> None:
    text = "".join(letters)
    raw = json.dumps(text, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "PIECE", size)
        assert b"".join(json_text.utf8_of(raw)) == text.encode()


def test_half_a_surrogate_pair_stays_as_written() -> None:
    assert b"".join(json_text.utf8_of(b'"\\ud83d"')) == b"\\ud83d"
