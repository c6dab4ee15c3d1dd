"""Merges Parquet files into one whose rows are sorted, with Arrow: no Spark, no table, one thread.

It holds the order of all rows, and of the rows themselves only as many as one pass writes: each pass reads the row groups that
have some of them. Files that are sorted already are so read about once, and files of one batch in each pass; to decode is cheap.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PASS: Final = 128 << 20  # bytes of rows that a pass holds, about, as Arrow has them
_OF_A_ROW: Final = 150  # bytes that a row takes beside what its row group says: values that repeat are one there
_OF_ARROW: Final = (b"ARROW:schema", b"pandas")


class Form(NamedTuple):
    """How a merged file is written. `by`: columns that order its rows; `plain`: columns without dictionary and ranges."""

    by: Sequence[str]
    level: int
    row_group: int
    """Bytes of a row group, compressed."""
    plain: Collection[str]


def merge_files(files: Sequence[Path], output: Path, form: Form) -> None:
    """Writes the rows of `files` to `output`, which is on disk then.

    Rows with equal keys stay in the order of `files`. A column that some files lack is null in their rows. Raises
    `pyarrow.ArrowException` or `OSError` if a file cannot be read or written.
    """
    schema = _schema(files)
    sources = [pq.ParquetFile(path, pre_buffer=False) for path in files]
    try:
        groups = [(source, number) for source in sources for number in range(source.num_row_groups)]
        order, weights = _order(groups, form.by, schema), _weights(groups)
        compressed = sum(path.stat().st_size for path in files)
        per_group = max(1, math.ceil(form.row_group / max(1, compressed) * max(1, len(order))))
        names = schema.names
        with pq.ParquetWriter(
            output,
            schema,
            compression="zstd",
            compression_level=form.level,
            # of texts only: numbers and times are smaller without one
            use_dictionary=[
                name for name in names if name not in form.plain and schema.field(name).type == pa.string()
            ],
            write_statistics=[name for name in names if name not in form.plain],
            write_page_index=True,
            store_schema=False,
        ) as writer:
            writer.add_key_value_metadata(_remarks(sources[0]))
            for positions in _passes(order, weights):
                writer.write_table(_rows(groups, positions, schema), row_group_size=per_group)
    finally:
        for source in sources:
            source.close()
    with output.open("rb") as written:
        os.fsync(written.fileno())


def _schema(files: Sequence[Path]) -> pa.Schema:
    """Returns the columns of all files."""
    schemas = [pq.read_schema(path).remove_metadata() for path in files]
    united: pa.Schema = pa.unify_schemas(schemas)
    return united


def _remarks(source: pq.ParquetFile) -> dict[bytes, bytes]:
    """Returns the remarks of the writer of `source`: by Spark's version there readers know how to take its dates."""
    found: dict[bytes, bytes] = source.metadata.metadata or {}
    return {name: value for name, value in found.items() if name not in _OF_ARROW}


def _order(groups: Sequence[tuple[pq.ParquetFile, int]], by: Sequence[str], schema: pa.Schema) -> Any:
    """Returns the position of each row of all `groups`, in the order of the output."""
    wanted = [name for name in by if name in schema.names]
    if not wanted:
        return np.arange(sum(source.metadata.row_group(number).num_rows for source, number in groups))
    keys = pa.concat_tables(
        [_read(source, number, pa.schema([schema.field(name) for name in wanted])) for source, number in groups]
    )
    keys = keys.append_column("position", pa.array(np.arange(keys.num_rows)))  # makes the order complete
    sorting = [(name, "ascending", "at_start") for name in (*wanted, "position")]
    return pc.sort_indices(keys, sort_keys=sorting).to_numpy()


def _weights(groups: Sequence[tuple[pq.ParquetFile, int]]) -> Any:
    """Returns about how many bytes each row takes."""
    found = [source.metadata.row_group(number) for source, number in groups]
    return np.concatenate(
        [np.full(each.num_rows, each.total_byte_size / max(1, each.num_rows) + _OF_A_ROW) for each in found]
        or [np.empty(0)]
    )


def _passes(order: Any, weights: Any) -> Iterator[Any]:
    """Cuts `order` so that the rows of each part take about `_PASS` bytes."""
    number = np.cumsum(weights[order]) // _PASS
    yield from np.split(order, np.flatnonzero(np.diff(number)) + 1)


def _rows(groups: Sequence[tuple[pq.ParquetFile, int]], positions: Any, schema: pa.Schema) -> pa.Table:
    """Returns the rows at `positions`, in their order."""
    ascending = np.sort(positions)
    parts, first = [], 0
    for source, number in groups:
        last = first + source.metadata.row_group(number).num_rows
        low, high = np.searchsorted(ascending, (first, last))
        if low < high:
            part = _read(source, number, schema)
            if high - low < last - first:
                part = part.take(pa.array(ascending[low:high] - first))
            parts.append(part)
        first = last
    if not parts:
        return schema.empty_table()
    place = np.searchsorted(ascending, positions)
    return pa.concat_tables(parts).combine_chunks().take(pa.array(place))


def _read(source: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    """Returns the columns of `schema` of a row group, null where it lacks them."""
    there = [name for name in schema.names if name in source.schema_arrow.names]
    rows = source.read_row_group(group, columns=there, use_threads=False)
    columns = [rows[column.name] if column.name in there else pa.nulls(rows.num_rows, column.type) for column in schema]
    return pa.table(columns, schema=schema)
