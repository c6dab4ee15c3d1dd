"""The rows that an earlier run wrote for a batch, as found in a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.fence import Fence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = "unix_micros(min(landed_at))"
"""SQL of an aggregate: the earliest `landed_at`, for `moment`."""


def moment(micros: int) -> datetime:
    """Returns the time `micros` microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def check_rows(fence: Fence, table: str, version: int, found: int, log: Log, *, strays: bool) -> None:
    """Raises `HaltError` unless all rows that the write `version` added to `table` are still there; blocks on storage.

    `found`: rows of the batch in the table. `strays`: among them may be rows of a job that was shut out.
    """
    wrote = fence.rows_of(table, version)
    if wrote is None:
        log.warning("rows of a batch not checked", table=table, reason="the log no longer has the commit")
        return
    if found < wrote or (found > wrote and not strays):
        raise HaltError(
            f"the table {table} holds {found} of the {wrote} rows that this batch wrote before the last stop: somebody"
            " deleted or doubled rows. If they were deleted, delete the checkpoint: the job then lands them again from"
            " Kafka. Otherwise restore the table (RESTORE TABLE …), and start again"
        )
