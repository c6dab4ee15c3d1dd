"""What the tables say of themselves: their protocol, statistics and comments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_lake.tables.layout import ABOUT, BATCHES, EVENTS, GAPS, QUARANTINE, SCHEMAS, STATISTICS

NAMES = (EVENTS, QUARANTINE, BATCHES, GAPS)


def said(lake: Path, name: str) -> dict[str, str | None]:
    """Column -> comment, as a reader without Spark sees it."""
    return {field.name: field.metadata.get("comment") for field in DeltaTable(str(lake / name)).schema().fields}


def comments(name: str) -> dict[str, str]:
    return {field.name: field.metadata["comment"] for field in SCHEMAS[name].fields}


def statistics(lake: Path, name: str) -> str:
    return DeltaTable(str(lake / name)).metadata().configuration[STATISTICS]


@pytest.fixture
def lake(tmp_path: Path, empty_tables: Path) -> Path:
    return Path(shutil.copytree(empty_tables, tmp_path / "lake"))


def test_every_column_has_a_comment_that_fits_into_a_table() -> None:
    for name, schema in SCHEMAS.items():
        assert ABOUT[name]
        for field in schema.fields:
            text = field.metadata["comment"]
            assert text
            assert not set(text) & set("|\n`"), (name, field.name)


@pytest.mark.spark
def test_new_tables_need_the_oldest_readers_and_writers_only(lake: Path) -> None:
    for name in NAMES:
        table = DeltaTable(str(lake / name))
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), name
        assert not protocol.reader_features
        assert not protocol.writer_features
        assert table.metadata().description == ABOUT[name]
        assert said(lake, name) == comments(name)
    assert statistics(lake, EVENTS).startswith("stream,source,event_time,")
