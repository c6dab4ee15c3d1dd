"""What the tables say of themselves: their protocol, statistics and comments."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_lake.tables.layout import ABOUT, EVENTS, SCHEMAS, STATISTICS


def test_every_column_has_a_comment_that_fits_into_a_table() -> None:
    for name, schema in SCHEMAS.items():
        assert ABOUT[name]
        for field in schema.fields:
            text = field.metadata["comment"]
            assert text
            assert not set(text) & set("|\n`"), (name, field.name)


@pytest.mark.spark
def test_new_tables_need_the_oldest_readers_and_writers_only(empty_tables: Path) -> None:
    """Their columns say what they mean to a reader without Spark, too."""
    for name, schema in SCHEMAS.items():
        table = DeltaTable(str(empty_tables / name))
        protocol, about = table.protocol(), table.metadata()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), name
        assert not protocol.reader_features
        assert not protocol.writer_features
        assert about.description == ABOUT[name]
        said = {field.name: field.metadata.get("comment") for field in table.schema().fields}
        assert said == {field.name: field.metadata["comment"] for field in schema.fields}
    events = DeltaTable(str(empty_tables / EVENTS)).metadata()
    assert events.configuration[STATISTICS].startswith("stream,source,event_time,")
