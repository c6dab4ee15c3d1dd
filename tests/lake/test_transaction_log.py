"""A table's log is read as it must be, or not at all. Without Spark: the log is a few texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.properties import KNOWN_FEATURES
from headrace_lake.tables.transaction_log import File, LiveFiles, TransactionLog


class Files:
    """The folder of a log."""

    def __init__(self, *commits: int) -> None:
        self.texts = {f"{number:020d}.json": '{"commitInfo": {}}' for number in commits}

    def put(self, number: int, *actions: dict[str, Any]) -> None:
        self.texts[f"{number:020d}.json"] = "\n".join(map(json.dumps, actions))

    def names(self, _: str) -> list[str]:
        return sorted(self.texts)

    def read(self, path: str) -> str | None:
        return self.texts.get(Path(path).name)


def log_of(files: Files) -> TransactionLog:
    return TransactionLog(files, "/lake/events")  # type: ignore[arg-type]


def transaction(version: int, rows: tuple[int, ...] = (), app: str = "headrace") -> list[dict[str, Any]]:
    adds = [{"add": {"path": "x", "stats": json.dumps({"numRecords": count})}} for count in rows]
    return [{"txn": {"appId": app, "version": version}}, *adds]


def protocol(*features: str) -> dict[str, Any]:
    return {
        "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [*features]}
    }


def test_the_highest_of_our_transactions_counts() -> None:
    files = Files(0, 1, 2, 3)
    files.put(1, *transaction(7))
    files.put(2, *transaction(9, app="another"))
    assert log_of(files).latest() == 7
    assert log_of(Files()).latest() == -1


DAMAGED = r"the log of the table /lake/events has the commit 1 damaged \(.*put the file back"
V2 = "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"


@pytest.mark.parametrize(
    ("commits", "more", "said"),
    [
        *(((0, 1, 2), {f"{1:020d}.json": text}, DAMAGED) for text in ("", '{"txn": {"appId": "headrace", "ver', "\0" * 90)),
        ((1, 2, 3), {}, "begins with the commit 1"),
        ((0, 2, 3), {}, "lacks the commit 1"),
        ((10, 11), {V2: ""}, r"begins with the commit 10 .* DROP FEATURE v2Checkpoint"),
        *(
            ((0,), {f"{1:020d}.json": json.dumps(protocol("appendOnly", feature))}, f"has the feature {feature}, which this")
            for feature in ("v2Checkpoint", "deletionVectors", "columnMapping", "catalogManaged", "of tomorrow")
        ),
        ((0,), {f"{1:020d}.json": '{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}'}, "columnMapping"),
        ((0,), {f"{1:020d}.json": '{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}'}, ""),
        ((0,), {f"{1:020d}.json": json.dumps(protocol(*sorted(KNOWN_FEATURES)))}, ""),
    ],
    ids=str,
)  # fmt: skip
def test_a_log_that_cannot_be_read_stops_the_job(commits: tuple[int, ...], more: dict[str, str], said: str) -> None:
    """Read on to a hole, the log would end there: an older job would not be shut out, and a claim would come too low."""
    files = Files(*commits)
    files.texts |= more
    if not said:
        assert log_of(files).latest() == -1
        return
    with pytest.raises(HaltError, match=said):
        log_of(files).latest()


def test_a_table_that_forgets_transactions_stops_the_job() -> None:
    """Delta then takes a batch that has landed for a new one, and the proof misses what was dropped and erased."""
    files = Files(0, 1, 2)
    forgets = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    files.put(1, {"metaData": {"id": "", "configuration": forgets}}, *transaction(3))
    log = log_of(files)
    with pytest.raises(HaltError, match=r"UNSET TBLPROPERTIES \('delta.setTransactionRetentionDuration'\)"):
        log.latest()
    files.put(2, {"metaData": {"id": "", "configuration": {}}})
    assert log_of(files).latest() == 3


def test_a_file_that_is_added_again_is_one() -> None:
    """As by `ANALYZE TABLE … COMPUTE DELTA STATISTICS`, which adds all files once more, with their statistics."""
    files = Files(0, 1, 2)
    add = {"add": {"path": "day=2026-11-27/x", "size": 7}}
    remove = {"remove": {"path": "day=2026-11-27/x"}}
    files.put(1, add)
    files.put(2, add)
    table = LiveFiles(files, "/lake/events")  # type: ignore[arg-type]
    table.latest()
    assert table.files == {"day=2026-11-27/x": File(7, 0.0, None)}
    files.put(3, remove)
    table.latest()
    assert table.files == {}
    files.put(4, remove)
    files.put(5, add)
    table.latest()
    assert table.has(["day=2026-11-27/x"])
