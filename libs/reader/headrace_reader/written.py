"""Rows of a query in a file of Parquet, with their types."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Final

from headrace_common.operations.errors import CommandError

from headrace_reader.address import LakeAddress
from headrace_reader.tables import connect, first_line, interruptible, told, unique_names

_AT_ONCE: Final = 10_000
"""Rows that are fetched together."""


def write_parquet(sql: str, lake: LakeAddress | str, target: Path) -> int:
    """Writes the rows beside `target`, and replaces that when they are whole; returns how many. Raises `CommandError`."""
    import pyarrow as pa  # only here: it takes a moment to load
    from pyarrow import parquet

    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")  # another may write the same at once

    def write() -> int:
        reader, count = found.to_arrow_reader(_AT_ONCE), 0
        named = zip(unique_names(found.columns), reader.schema, strict=True)
        schema = pa.schema([field.with_name(name) for name, field in named])
        with parquet.ParquetWriter(beside, schema, compression="zstd") as writer:
            for batch in reader:
                count += batch.num_rows
                writer.write_batch(pa.record_batch(batch.columns, schema=schema))
        beside.replace(target)
        return count

    with connect(lake) as connection, told(sql):
        found = connection.sql(sql)
        try:
            return interruptible(connection, write)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CommandError(f"{target} cannot be written as Parquet: {first_line(str(error))}.") from error
        except OSError as error:
            raise CommandError(f"{target} cannot be written: {error.strerror or first_line(str(error))}.") from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
