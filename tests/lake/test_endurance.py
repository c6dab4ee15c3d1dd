"""The comparison of the endurance commands finds errors, on a lake of five records."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from benchmarks.endurance.verify import compare
from tests.lake.test_query import batch, event, make, reject

SENT = [
    (0, 0, "d.a", "1", "first"),
    (0, 1, "d.b", "2", "first"),
    (0, 2, "d.a", "1", "resend"),
    (0, 3, "", "x", "bad"),
    (0, 4, "u.c", "3", "unique"),
]
LANDED = [(0, 0, "d.a", "1"), (0, 1, "d.b", "2"), (0, 4, "u.c", "3")]
RESENT = (0, 2, "d.a", "1")


def _write(lake: Path, rows: list[tuple[int, int, str, str]], duplicates: int, bad: list[int]) -> None:
    events = [event(offset, partition, event_id=name, body=body) for partition, offset, name, body in rows]
    rejects = [{**reject(offset), "reason": "missing_header"} for offset in bad]
    again = [
        {"event_id": "d.a", "topic_id": "id", "partition": 0, "offset": 2 + number} for number in range(duplicates)
    ]
    lines = [{**batch(0, 5, 5), "topic": "t"}]
    make(lake, events=events, quarantine=rejects, duplicates=again, batches=lines)


def wrong(folder: Path, rows: list[tuple[int, int, str, str]], *, duplicates: int, bad: list[int]) -> list[str]:
    _write(folder / "lake", rows, duplicates, bad)
    lines = [(p, o, name, hashlib.md5(body.encode()).hexdigest(), kind) for p, o, name, body, kind in SENT]
    (folder / "sent.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return compare(folder / "lake", folder / "sent.csv", collapse=True)


def test_an_exact_lake_is_exact(tmp_path: Path) -> None:
    assert wrong(tmp_path, LANDED, duplicates=1, bad=[3]) == []


@pytest.mark.parametrize(
    ("rows", "duplicates", "bad", "said"),
    [
        (LANDED[:2], 2, [3], "events that landed too often or not at all"),
        ([*LANDED[:2], (0, 4, "u.c", "other")], 1, [3], "rows of events that nobody sent there"),
        ([*LANDED, RESENT], 0, [3], "events that landed too often or not at all"),
        ([*LANDED, LANDED[0]], 0, [3], "records that landed twice"),
        (LANDED, 2, [], "bad records that are not in quarantine once"),
        (LANDED, 0, [3], "the lake has 0 duplicates, 1 were sent"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, rows: list[tuple[int, int, str, str]], duplicates: int, bad: list[int], said: str
) -> None:
    assert any(said in line for line in wrong(tmp_path, rows, duplicates=duplicates, bad=bad))
