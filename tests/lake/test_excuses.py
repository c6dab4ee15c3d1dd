"""What the proof of content names, leaves out and believes, on small lakes without Spark."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from headrace_cli.verbs import query
from headrace_lake.tables import erasures
from headrace_lake.tables.digest import OF_TABLE, LineDigest, Sums
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES, EVENTS, GAPS, QUARANTINE, SCHEMAS
from headrace_lake.tables.properties import ERASED_APP, RETAINED_APP, RETAINED_FROM
from headrace_reader import content
from headrace_reader.proof import exactly_once
from headrace_reader.tables import connect

from tests.lake.test_query import DAY_OF_IT, MOMENT, append, batch, columns_of, commit, event, make, reject

DAYS = (DAY_OF_IT - MOMENT.date().replace(year=1970, month=1, day=1)).days
HOLDS = "each range of events holds what landed"
NOTHING_PROVES = "ranges whose content nothing proves"


def sums(lake: Path, table: str) -> list[Sums]:
    """What the rows of each line of `batches` sum up to now, in the order of places."""
    with connect(lake) as connection:
        content.places(connection)
        lines = content._Lines(connection, table)
        lines.read(connection, OF_TABLE[table])
        return [(int(a), int(b)) for a, b in zip(*lines._sums, strict=True)]


def lake_of(folder: Path, *lines: dict[str, Any], slots: int = 4, **rows: list[dict[str, Any]]) -> Path:
    """A lake whose lines have the digests of the rows that are there."""
    make(folder, batches=[*lines], **rows)
    found = {table: sums(folder, table) for table in (EVENTS, QUARANTINE)}
    shutil.rmtree(folder / BATCHES)
    together: dict[tuple[int, int, str], Sums] = {}
    for number, line in enumerate(lines):
        for table, each in found.items():
            of = line["batch"], line["partition"] % slots, table
            before = together.get(of, (0, 0))
            together[of] = before[0] + each[number][0], before[1] + each[number][1]
    for line in lines:
        slot = line["partition"] % slots
        line["digest"] = str(LineDigest(slots, slot, {t: together[line["batch"], slot, t] for t in found}))
    append(folder / BATCHES, columns_of(SCHEMAS[BATCHES]), [*lines])
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    lines = batch(0, 2, 2), batch(2, 4, 1, 1), batch(0, 1, 1, partition=1)
    rows = [event(0), event(1), event(3), event(0, 1)]
    return lake_of(tmp_path / "lake", *lines, events=rows, quarantine=[reject(2)])


def failed(lake: Path, *, whole: bool = True) -> dict[str, str]:
    """The checks that fail, with what they say."""
    found = exactly_once(lake, content=whole)[:-1]
    return {row["check"]: row["detail"] for row in found if not row["ok"]}


def unproven(lake: Path) -> str:
    return next((row["detail"] for row in exactly_once(lake, content=True) if row["check"] == NOTHING_PROVES), "")


def test_what_landed_is_proven(lake: Path) -> None:
    assert failed(lake) == {}
    assert not unproven(lake)
    assert query.query(None, lake=str(lake), named="exactly-once", content=True) == 0


def test_a_changed_row_is_named_by_its_range_and_only_if_asked_for(lake: Path) -> None:
    DeltaTable(str(lake / EVENTS)).update({"body": "'{}'"}, predicate="event_id = 'd.3'")
    assert failed(lake, whole=False) == {}
    said = failed(lake)
    assert list(said) == [HOLDS]
    assert said[HOLDS].startswith("1 ")
    assert "partition 0, from 2, to 4" in said[HOLDS]
    assert query.query(None, lake=str(lake), named="exactly-once", content=True) == 1


def test_partitions_that_share_sums_are_named_together(tmp_path: Path) -> None:
    lines = batch(0, 1, 1, batch=7), batch(0, 1, 1, partition=1, batch=7), batch(0, 1, 1, partition=2, batch=7)
    lake = lake_of(tmp_path / "lake", *lines, slots=2, events=[event(0), event(0, 1), event(0, 2)])
    assert failed(lake) == {}
    DeltaTable(str(lake / EVENTS)).update({"body": "'{}'"}, predicate='"partition" = 2')
    assert failed(lake)[HOLDS].startswith("2 ")


@pytest.mark.parametrize(("shift", "day"), [(-3600, 0), (0, 1)])
def test_a_row_that_landed_before_its_batch_or_on_another_day_is_named(tmp_path: Path, shift: int, day: int) -> None:
    moved: dict[str, Any] = {"landed_at": MOMENT + timedelta(seconds=shift), "day": DAY_OF_IT + timedelta(days=day)}
    lake = lake_of(tmp_path / "lake", batch(0, 2, 2), events=[event(0), event(1, **moved)])
    assert list(failed(lake)) == [HOLDS]


@pytest.mark.parametrize(
    "digest",
    [
        None,
        '{"slots": 4, "slot": 0, "sums": {"events": null, "quarantine": null}}',
        '{"slots": 4, "slot": 0, "sums": null}',
    ],
)
def test_lines_without_sums_prove_nothing_and_contradict_nothing(lake: Path, digest: str | None) -> None:
    DeltaTable(str(lake / EVENTS)).update({"body": "'{}'"}, predicate="event_id = 'd.3'")
    value = "null" if digest is None else f"'{digest}'"
    DeltaTable(str(lake / BATCHES)).update({"digest": value}, predicate="batch = 2")
    assert failed(lake) == {}
    assert unproven(lake) == "; ".join(
        f"{table}: 1 of 3 ranges, the last of them of batch 2 of epoch 1" for table in (EVENTS, QUARANTINE)
    )


@pytest.mark.parametrize("digests", [True, False])
def test_only_the_job_excuses_what_it_landed_with_a_digest(lake: Path, digests: bool) -> None:
    """Anybody may set a property. Versions without digests say nothing else."""
    if not digests:
        DeltaTable(str(lake / BATCHES)).update({"digest": "null"})
    tomorrow = DAY_OF_IT + timedelta(days=1)
    commit(lake, EVENTS, transaction(1, 2), {RETAINED_FROM: tomorrow.isoformat()})
    DeltaTable(str(lake / EVENTS)).delete()
    assert bool(failed(lake)) is digests
    commit(lake, EVENTS, DAYS, app=RETAINED_APP)
    assert bool(failed(lake)) is digests
    commit(lake, EVENTS, DAYS + 1, app=RETAINED_APP)
    assert failed(lake) == {}


def erased(
    lake: Path, number: int, digest: str | None, *, by_command: bool = True, offsets: tuple[int, ...] = (0,)
) -> None:
    """Deletes events of the first partition, as the erasure `number`."""
    row = {"erasure": f"e{number}", "table": EVENTS, "topic_id": "id", "partition": 0, "epoch": 1, "batch": 0, "from": 0,
           "to": 2, "rows": len(offsets), "offsets": [*offsets], "ids": [], "erased_at": MOMENT, "digest": digest}  # fmt: skip
    told = CommitProperties(app_transactions=[Transaction(ERASED_APP, number)]) if by_command else None
    append(lake / ERASURES, columns_of(erasures.SCHEMA), [row], told)
    named = ", ".join(map(str, offsets))
    DeltaTable(str(lake / EVENTS)).delete(f'"offset" in ({named}) and "partition" = 0')


def test_what_was_erased_takes_its_sums_along(lake: Path) -> None:
    before = sums(lake, EVENTS)
    DeltaTable(str(lake / EVENTS)).update({"attributes": "'{}'"}, predicate="event_id = 'd.1'")
    assert list(failed(lake)) == [HOLDS]
    DeltaTable(str(lake / EVENTS)).restore(0)
    assert sums(lake, EVENTS) == before
    copy = lake.parent / "copy"
    shutil.copytree(lake, copy)
    DeltaTable(str(copy / EVENTS)).delete("event_id <> 'd.0' or \"partition\" = 1")
    (gone, *_) = sums(copy, EVENTS)
    erased(lake, 1, f"{gone[0]:016x}{gone[1]:016x}")
    assert failed(lake) == {}
    assert not unproven(lake)
    DeltaTable(str(lake / EVENTS)).update({"body": "'{}'"}, predicate="event_id = 'd.1'")
    assert list(failed(lake)) == [HOLDS]


def test_an_erasure_without_sums_proves_nothing(lake: Path) -> None:
    erased(lake, 1, None)
    assert failed(lake) == {}
    assert unproven(lake).startswith("events: 1 of 3 ranges")


@pytest.mark.parametrize("first", [True, False])
def test_an_erasure_that_the_command_did_not_list_is_named(lake: Path, first: bool) -> None:
    if not first:
        erased(lake, 1, None)
        assert failed(lake) == {}
    erased(lake, 2, None, by_command=False)
    assert list(failed(lake)) == ["each erasure was listed by the command"]


def test_an_erasure_of_what_an_older_version_landed_needs_no_word_of_the_command(lake: Path) -> None:
    DeltaTable(str(lake / BATCHES)).update({"digest": "null"})
    erased(lake, 1, None, by_command=False)
    assert failed(lake) == {}


def test_a_digest_that_is_no_json_contradicts_nothing_that_it_says(lake: Path) -> None:
    DeltaTable(str(lake / BATCHES)).update({"digest": "'{'"}, predicate="batch = 2")
    assert "1 of 3 ranges" in unproven(lake)


MARKER: dict[str, Any] = {
    "source": "/logjam/x",
    "received_time": MOMENT,
    "body": '{"consumer":"a","device":7,"from":5,"to":9}',
}
MISSED = {"reason": "logjam", "topic_id": "id", "partition": 0, "offset": 1, "source": "/logjam/x", "device": 7,
          "from_sequence": 5, "to_sequence": 9, "covered": False, "detail": MARKER["body"], "received_time": MOMENT,
          "landed_at": MOMENT}  # fmt: skip
ODD = '{"from":"x","to":1.5}'


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A lake with a Logjam gap, and one of an odd marker."""
    rows = [event(0), event(1, **MARKER), event(2, **{**MARKER, "body": ODD})]
    odd = {**MISSED, "offset": 2, "device": None, "from_sequence": None, "to_sequence": 1, "detail": ODD}
    return lake_of(tmp_path / "lake", batch(0, 3, 3), events=rows, gaps=[MISSED, odd])


@pytest.mark.parametrize(
    "changed",
    [
        {"detail": "'{}'"},
        {"from_sequence": "6"},
        {"to_sequence": "null"},
        {"device": "8"},
        {"source": "'/logjam/y'"},
        {"received_time": "received_time + interval '1 hour'"},
        {'"offset"': "7"},
    ],
)
def test_a_gap_that_is_not_what_its_marker_says_is_named(marked: Path, changed: dict[str, str]) -> None:
    assert failed(marked) == {}
    DeltaTable(str(marked / GAPS)).update(changed, predicate="device = 7")
    assert list(failed(marked)) == ["each Logjam gap is what its marker in events says"]


def test_a_gap_stays_when_its_marker_was_erased_or_dropped(marked: Path) -> None:
    dropped = marked.parent / "dropped"
    shutil.copytree(marked, dropped)
    DeltaTable(str(dropped / EVENTS)).delete()
    assert "each Logjam gap is what its marker in events says" in failed(dropped)
    commit(dropped, EVENTS, DAYS + 1, app=RETAINED_APP)
    assert failed(dropped) == {}
    erased(marked, 1, None, offsets=(0, 1, 2))
    assert failed(marked) == {}
