"""Erases records on request, beside a running job if need be.

First one commit to the table `erasures` lists the records, by place and id. From then on none of them lands again, and counts
take it for present (`tables.erasures`). Only then the rows are deleted, table by table, in commits without a transaction
identifier, like those of maintenance: each deletes the rows that are listed and still there. So a killed erasure has done
nothing, or left rows that are listed, and any later one deletes those.

The fence needs no claim: a job that is shut out, or a new one, may land at any time without bringing a listed record back, as
it looks at the list before each batch. A batch that has begun before the list was written, and holds the same event sent
again, may land that; the next erasure deletes it, and the proof names it until then.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from headrace_common.operations.log import Log
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace_lake.commands.erase_rows import ErasureRows, Found
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS, QUARANTINE
from headrace_lake.tables.on_spark import Tables

_TABLES: Final = (EVENTS, QUARANTINE)
_ATTEMPTS: Final = 20  # at a commit that another one overtakes
_CONFLICT: Final = re.compile(r"Concurrent\w+Exception|DELTA_CONCURRENT_\w+|(Metadata|Protocol)ChangedException")


@dataclass(frozen=True)
class ErasureRequest:
    """The request: the records to erase, for whom and why."""

    where: str
    """SQL over the columns of `events`; empty: only the rows that earlier erasures have left."""
    reason: str
    requested_by: str


@dataclass(frozen=True)
class ErasureResult:
    """How many rows an erasure listed, or would list; and how many it deleted, including those that earlier ones left."""

    events: int = 0
    quarantined: int = 0
    deleted: int = 0


class Erase:
    """One erasure. Without `apply` it changes nothing. The bytes go with the next vacuum of a job."""

    def __init__(self, tables: Tables, rows: ErasureRows, request: ErasureRequest, *, apply: bool, log: Log) -> None:
        self._tables = tables
        self._rows = rows
        self._request = request
        self._apply = apply
        self._log = log
        self._erasure = uuid.uuid4().hex

    def run(self) -> ErasureResult:
        """Erases, logs a line for each table and partition, and returns the sum. Blocks: reads all of both tables.

        Raises `HaltError` without tables, or if commits of others overtake it again and again.
        """
        if not self._tables.storage.exists(f"{self._tables.path(EVENTS)}/_delta_log"):
            raise HaltError(f"there are no tables in {self._tables.lake}: nothing was landed that could be erased")
        Fence(self._tables).epoch()  # refuses logs that it does not understand: deletion vectors keep bytes
        for _ in range(_ATTEMPTS):
            try:
                if (result := self._planned_and_done()) is not None:
                    return result
            finally:
                self._rows.close()
        raise HaltError("nothing was erased: others write into the table erasures all the time")

    def _planned_and_done(self) -> ErasureResult | None:
        """Plans and erases. None, and nothing is done, if another erasure came in between: it may have listed the same rows."""
        before = self._rows.erasures()  # a later one spoils the plan
        found = self._say(self._rows.find(self._request.where))
        left = 0
        if before:
            left = sum(sum(self._rows.left(table).values()) for table in _TABLES)
        if left:
            self._log.warning("rows of an earlier erasure found", rows=left)
        if not self._apply:
            self._log.info("would erase", events=found[EVENTS], quarantined=found[QUARANTINE])
            return ErasureResult(found[EVENTS], found[QUARANTINE])
        any_found = any(found.values())
        if (self._request.where or any_found) and not self._list(before + 1):
            return None
        deleted = sum(self._delete(table) for table in _TABLES) if left or any_found else 0
        self._log.info(
            "erased", erasure=self._erasure, events=found[EVENTS], quarantined=found[QUARANTINE], deleted=deleted
        )
        return ErasureResult(found[EVENTS], found[QUARANTINE], deleted)

    def _say(self, found: Iterable[Found]) -> dict[str, int]:
        """Logs a line for each table and partition; returns the rows of each table."""
        total = dict.fromkeys(_TABLES, 0)
        for each in found:
            total[each.table] += each.rows
            self._log.info("found", **each._asdict())
        return total

    def _list(self, number: int) -> bool:
        """Lists what was found as the erasure of this `number`, in one commit; from here on nothing of it lands again.

        False, and nothing is written, if another erasure has the number.
        """
        request = self._request
        own = {
            "erasure": self._erasure,
            "requested_by": request.requested_by,
            "reason": request.reason,
            "predicate": hashed(request.where),
        }
        append = partial(self._rows.list_found, own, number, self._rows.erasures)
        return self._committed(ERASURES, append) and self._rows.is_listed(self._erasure)

    def _delete(self, table: str) -> int:
        """Deletes the listed rows of `table`; returns how many."""
        deleted = 0
        for _ in range(_ATTEMPTS):
            days = self._rows.left(table)
            if not days:
                return deleted
            if self._committed(table, partial(self._rows.delete, table, days)):
                deleted += sum(days.values())
                self._log.debug("deleted", table=table, rows=sum(days.values()))
        raise HaltError(
            f"the rows of the table {table} are listed and not deleted yet, because compaction changes the same files all the"
            " time: run `python -m headrace_lake erase --finish --apply` later"
        )

    def _committed(self, table: str, commit: Callable[[], object]) -> bool:
        """Makes a commit to `table`. False if another one came in between, so that nothing of it is there. Blocks."""
        try:
            commit()
        except (Py4JJavaError, PySparkException) as error:
            if _CONFLICT.search(str(error)) is None:
                raise
            self._log.debug("commit conflict", table=table)
            return False
        return True


def hashed(text: str, salt: str | None = None) -> str:
    """Returns a salted hash of `text`, as ``sha256:SALT:DIGEST``: a reader who has the text can recognise it.

    The salt, 32 hex digits, is new unless given. The digest is that of the salt's digits followed by the text in UTF-8.
    """
    salt = salt or secrets.token_hex(16)
    return f"sha256:{salt}:{hashlib.sha256((salt + text).encode()).hexdigest()}"
