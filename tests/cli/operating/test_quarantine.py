"""Items of quarantine are put together from rows of the lake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.wire import items
from headrace_cli.wire.items import gathered, name_of
from headrace_reader.tables import Row

MOMENT = datetime(2026, 5, 6, 12, tzinfo=UTC)


def named(number: int) -> str:
    return f"d.{number:032x}"


def row(number: int, part: int = 1, parts: int = 1, raw: bytes = b"x", **values: Any) -> Row:
    place = {"topic": "q", "partition": 0, "offset": number}
    return {"id": named(number), "part": part, "parts": parts, "raw": raw, "received_time": MOMENT, **place, **values}


class TestItems:
    def test_parts_come_together_in_any_order(self) -> None:
        rows = [row(1, 2, 3, b"b"), row(2), row(1, 3, 3, b"c"), row(1, 2, 3, b"b"), row(1, 1, 3, b"a")]
        assert [(item.name, item.content()) for item in gathered(rows)] == [(named(2), b"x"), (named(1), b"abc")]

    def test_what_was_sent_again_comes_once(self) -> None:
        assert len(list(gathered([row(1), row(1), row(1, sha256="other")]))) == 2

    def test_a_part_that_is_missing(self) -> None:
        (item,) = gathered([row(1, 1, 3)])
        assert item.problem() == "2 of 3 parts are missing"

    def test_bytes_that_are_not_those(self) -> None:
        (item,) = gathered([row(1, sha256="0" * 64)])
        assert "hash" in item.problem()

    def test_parts_without_their_others_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(items, "HELD_BYTES", 10)
        assert len(list(gathered([row(n, 1, 2, b"12345") for n in range(2)]))) == 2
        with pytest.raises(CommandError, match="narrow the time"):
            list(gathered([row(n, 1, 2, b"12345") for n in range(3)]))
        assert len(list(gathered([row(n, 1, 1, b"12345") for n in range(9)]))) == 9

    @pytest.mark.parametrize("name", [None, "", "../../x", "d.1", "d." + "G" * 32, "x." + "0" * 32])
    def test_only_an_id_of_ours_becomes_a_name(self, name: str | None) -> None:
        assert name_of(row(7, id=name)) == "q-0-7"
