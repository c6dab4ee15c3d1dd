"""Rows of a query in a format for programs: text on standard output, or a file of Parquet."""

from __future__ import annotations

import contextlib
import csv
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from headrace_common.operations.errors import CommandError

from headrace_reader.address import LakeAddress
from headrace_reader.tables import Row, asked, connect, first_line, interruptible, told, unique_names
from headrace_reader.text import json_value, text

_AT_ONCE: Final = 10_000
"""Rows that are fetched together."""


class TableFormat(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True)
class Output:
    """`format`: None for a table on a terminal, else values with tabs between them. `file`: for Parquet."""

    format: TableFormat | None = None
    file: Path | None = None


def write_query(sql: str, lake: LakeAddress | str, output: Output) -> int:
    """Writes the rows of `sql` as CSV, JSON or Parquet while they come; returns how many. Raises `CommandError`."""
    with connect(lake) as connection:
        if output.format is not TableFormat.PARQUET:
            with asked(connection, sql) as (names, result):
                return write_rows(
                    names,
                    _fetched(names, partial(interruptible, connection, partial(result.fetchmany, _AT_ONCE))),
                    output,
                )
        assert output.file is not None
        with told(sql):
            found = connection.sql(sql)
            names, file = unique_names(found.columns), output.file
            return interruptible(connection, lambda: _write_parquet(file, names, found.to_arrow_reader(_AT_ONCE)))


def write_rows(names: Sequence[str], found: Iterable[Row], output: Output) -> int:
    """Writes `found` as CSV or JSON; returns how many. Raises `CommandError` for Parquet, whose types rows of our own lack."""
    if output.file is not None:
        raise CommandError("These rows can be CSV or JSON, not Parquet.", status=2)
    return (_write_csv if output.format is TableFormat.CSV else _write_json)(sys.stdout, names, found)


def _fetched(names: Sequence[str], more: Callable[[], Sequence[Any]]) -> Iterator[Row]:
    while batch := more():
        for values in batch:
            yield dict(zip(names, values, strict=True))


def _write_csv(file: IO[str], names: Sequence[str], found: Iterable[Row]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    count = 0
    for row in found:
        writer.writerow([text(value) for value in row.values()])
        count += 1
    return count


def _write_json(file: IO[str], names: Sequence[str], found: Iterable[Row]) -> int:
    """Returns an array of objects; the same as of all at once."""
    count = 0
    for count, row in enumerate(found, 1):
        one = json.dumps([json_value(row)], ensure_ascii=False, indent=1)
        file.write(("," if count > 1 else "[") + one.removeprefix("[").removesuffix("\n]"))
    file.write("\n]\n" if count else "[]\n")
    return count


def _write_parquet(target: Path, names: Sequence[str], reader: Any) -> int:
    """Writes the batches of `reader`, which is pyarrow's, beside `target`, and replaces that when they are whole."""
    import pyarrow as pa  # only here: it takes a moment to load
    from pyarrow import parquet

    schema = pa.schema([field.with_name(name) for name, field in zip(names, reader.schema, strict=True)])
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")  # another may write the same at once
    count = 0
    try:
        with parquet.ParquetWriter(beside, schema, compression="zstd") as writer:
            for batch in reader:
                count += batch.num_rows
                writer.write_batch(pa.record_batch(batch.columns, schema=schema))
        beside.replace(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CommandError(f"{target} cannot be written as Parquet: {first_line(str(error))}.") from error
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror or first_line(str(error))}.") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    return count
