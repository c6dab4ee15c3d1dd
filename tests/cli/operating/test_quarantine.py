"""Items of quarantine are put together from rows of the lake."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.wire.items import items_of

from tests.lake.test_query import make, reject

MOMENT = datetime(2026, 5, 6, 12, tzinfo=UTC)
NAME = "d." + "1" * 32


def row(number: int, part: int = 1, parts: int = 1, raw: bytes = b"x", **values: Any) -> dict[str, Any]:
    about = {
        "id": NAME,
        "part": part,
        "parts": parts,
        "raw": raw,
        "sha256": None,
        "received_time": MOMENT,
        "topic": "t",
    }
    return {**reject(number), **about, **values}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([row(1, 2, 3, b"b"), row(2, 3, 3, b"c"), row(3, 2, 3, b"b"), row(4, 1, 3, b"a")], [(NAME, b"abc", "")]),
        ([row(1), row(2), row(3, sha256=hashlib.sha256(b"x").hexdigest())], [(NAME, b"x", "")] * 2),
        ([row(1, 2, 3, b"b")], [(NAME, b"b", "2 of 3 parts are missing")]),
        ([row(1, sha256="0" * 64)], [(NAME, b"x", "its bytes do not have the hash that they had")]),
        *(
            ([row(7, id=name)], [("t-0-7", b"x", "")])
            for name in (None, "", "../../x", "d.1", "d." + "G" * 32, "x." + "0" * 32)
        ),
    ],
)
def test_items_from_their_parts(rows: list[Any], found: list[tuple[str, bytes, str]], tmp_path: Path) -> None:
    make(tmp_path, quarantine=rows)
    assert [(item.name, item.content, problem) for item, problem in items_of(tmp_path)] == found


def test_the_newest_come_first_and_others_are_left_out(tmp_path: Path) -> None:
    later = MOMENT + timedelta(hours=1)
    rows = [row(1, reason="internal"), row(2, id="d." + "2" * 32, received_time=later), row(3, id=None, protocol="x")]
    make(tmp_path, quarantine=rows)
    assert next(items_of(tmp_path))[0].received_ms == later.timestamp() * 1000
    assert [item.reason for item, _ in items_of(tmp_path, ["internal"])] == ["internal"]
    assert [item.protocol for item, _ in items_of(tmp_path, protocols=["x"])] == ["x"]
    assert len(list(items_of(tmp_path, since=later))) == 1
