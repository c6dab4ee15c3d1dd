"""`headrace quarantine`: what is there is listed, shown and exported, byte for byte, from the lake and from the topic."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.operating.records import Row
from headrace_cli.wire.quarantined import items
from headrace_cli.wire.quarantined.items import gathered, name_of
from headrace_cli.wire.quarantined.verbs import SHOWN_BYTES, export, list_, show

from tests.lake.test_query import make, reject

MOMENT = datetime(2026, 5, 6, 12, tzinfo=UTC)
WHOLE = b"first" + bytes(range(256)) + b"last"
SHA = hashlib.sha256(WHOLE).hexdigest()


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


def kept(offset: int, number: int, raw: bytes, part: int = 1, parts: int = 1, **values: Any) -> Row:
    base = {"id": named(number), "raw": raw, "part": part, "parts": parts, "protocol": "forward", "topic": "q"}
    return {**reject(offset), **base, "received_time": MOMENT + timedelta(minutes=number), "sha256": "", **values}


BETWEEN = (MOMENT + timedelta(minutes=2)).isoformat()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rows = [
        kept(0, 1, b"one", reason="bad_json", detail="at 3\x1b[2J"),
        kept(1, 2, WHOLE[:100], 1, 2, reason="bad_record", sha256=SHA),
        kept(2, 2, WHOLE[100:], 2, 2, reason="bad_record", sha256=SHA),
        kept(3, 3, b"three", reason="null_value", protocol="courier", id=None),
    ]
    make(tmp_path / "lake", quarantine=rows)
    return tmp_path / "lake"


def listed(capsysbinary: pytest.CaptureFixture[bytes], **options: Any) -> list[Any]:
    assert list_(as_json=True, **options) == 0
    return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["q-0-3", named(2), named(1)]),
        ({"reason": ["bad_json", "bad_time"]}, [named(1)]),
        ({"protocol": ["forward"]}, [named(2), named(1)]),
        ({"since": BETWEEN}, ["q-0-3", named(2)]),
        ({"until": BETWEEN}, [named(1)]),
    ],
)
def test_the_lakes_items(
    lake: Path, capsysbinary: pytest.CaptureFixture[bytes], wanted: dict[str, Any], names: list[str]
) -> None:
    found = listed(capsysbinary, lake=lake, **wanted)
    assert [item["name"] for item in found] == names
    assert [item["bytes"] for item in found if item["name"] == named(2)] in ([], [len(WHOLE)])


def test_the_newest_of_those_without_an_id_come_first(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    rows = [kept(n, n, b"x", reason="null_value", id=None) for n in (1, 3, 4)]
    make(tmp_path / "lake", quarantine=[*rows, kept(2, 2, b"y")])
    found = listed(capsysbinary, lake=tmp_path / "lake", limit=3)
    assert [item["name"] for item in found] == ["q-0-4", "q-0-3", named(2)]


def test_a_list_for_people(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list_(lake=str(lake)) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "at 3\\x1b[2J" in out
    assert list_(lake=str(lake), reason=["too_deep"]) == 0
    assert "Nothing is in quarantine" in capsys.readouterr().out


def test_one_item(lake: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for name, content in ((named(2), WHOLE), ("q-0-3", b"three")):
        assert show(name, lake=str(lake), raw=True) == 0
        assert capsysbinary.readouterr().out == content
    assert show(named(2), lake=str(lake)) == 0
    assert b"00000000  66 69 72 73 74 00" in capsysbinary.readouterr().out
    with pytest.raises(CommandError, match=r"has no d\.9 in quarantine"):
        show("d.9", lake=str(lake))


@pytest.mark.parametrize(("more", "said"), [(0, False), (1, True)])
def test_a_long_item_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: int, said: bool) -> None:
    make(tmp_path, quarantine=[kept(0, 1, b"x" * (SHOWN_BYTES + more), reason="bad_json")])
    assert show(named(1), lake=str(tmp_path)) == 0
    assert ("more bytes" in capsys.readouterr().out) is said


def test_export(lake: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert export(folder, lake=str(lake)) == 0
    index = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    assert {line["name"]: (folder / line["file"]).read_bytes() for line in index} == {
        "q-0-3": b"three",
        named(2): WHOLE,
        named(1): b"one",
    }
    with pytest.raises(CommandError, match="is not empty"):
        export(folder, lake=str(lake))
    with pytest.raises(CommandError, match="cannot be written"):
        export(folder / "index.jsonl", lake=str(lake))


def test_two_items_with_one_id_and_one_that_is_not_whole(tmp_path: Path) -> None:
    rows = [kept(0, 1, b"one", sha256="/../a"), kept(1, 1, b"other", sha256="b"), kept(2, 2, b"part", 1, 2)]
    make(tmp_path / "lake", quarantine=rows)
    assert export(tmp_path / "out", tmp_path) == 1
    files = {path.read_bytes() for path in (tmp_path / "out").glob("*.bin")}
    assert files == {b"one", b"other", b"part"}
    assert "1 of 2 parts are missing" in (tmp_path / "out" / "index.jsonl").read_text()
