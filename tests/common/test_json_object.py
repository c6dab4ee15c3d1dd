"""JSON that goes on byte for byte: its depth and its times."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.json_object import Fault, JsonObject, deepest, utc
from hypothesis import given
from hypothesis import strategies as st

texts = st.text(alphabet='[]{}"\\,:aü\n', max_size=6)
values = st.recursive(
    st.none() | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


class Wanted(msgspec.Struct):
    """A field of a certain type, as some protocols want it."""

    field: str | None = None


@pytest.mark.parametrize("before", [b"", b'"field":1,'], ids=["as wanted", "another type"])
def test_too_deep_for_any_reader_is_too_deep(before: bytes) -> None:
    """Also if the first reader has given up before the depth, because of a field's type."""
    for levels in (100, 5_000):
        found = JsonObject(Wanted, 64).read(b"{%b" % before + b'"x":' + b"[" * levels + b"]" * levels + b"}")
        assert isinstance(found, Fault)
        assert found.reason is Reason.TOO_DEEP


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(values, st.booleans())
def test_depth(value: Any, ascii_only: bool) -> None:
    assert deepest(json.dumps(value, ensure_ascii=ascii_only).encode()) == depth(value)


def test_a_million_brackets_are_no_burden() -> None:
    raw = b"[" + b"[],{}," * 170_000 + b"[]]"
    began = time.thread_time()
    assert deepest(raw) == 2
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("text", ["٢026-11-21T09:30:00Z", "2026-11-21T09:30:0٠Z", "2026-11-21T09:30:00.١Z"])
def test_digits_are_ascii(text: str) -> None:
    assert utc(text) is None
