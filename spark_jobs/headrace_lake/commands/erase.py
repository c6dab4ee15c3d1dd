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

import argparse
import getpass
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.commands.erase_rows import ErasureRows
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.spark.engine import running
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.fence import Fence, unless_altered, unless_overtaken
from headrace_lake.tables.layout import EVENTS, QUARANTINE
from headrace_lake.tables.on_spark import Tables

_ATTEMPTS: Final = 20  # at a list that another erasure overtakes


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

    events: int
    quarantined: int
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
        """Erases, and returns how much. Blocks: reads all of both tables.

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
        found = self._rows.find(self._request.where)
        events, quarantined = found.get(EVENTS, 0), found.get(QUARANTINE, 0)
        if not self._apply:
            self._log.info("would erase", events=events, quarantined=quarantined)
            return ErasureResult(events, quarantined)
        if (self._request.where or found) and not self._list(before + 1):
            return None
        deleted = sum(self._delete(table) for table in (EVENTS, QUARANTINE))
        self._log.info("erased", erasure=self._erasure, events=events, quarantined=quarantined, deleted=deleted)
        return ErasureResult(events, quarantined, deleted)

    def _list(self, number: int) -> bool:
        """Lists what was found as the erasure of this `number`, in one commit; from here on nothing of it lands again.

        False, and nothing is written, if another erasure has the number.
        """
        own = {
            "erasure": self._erasure,
            "requested_by": self._request.requested_by,
            "reason": self._request.reason,
        }
        unless_overtaken(partial(self._rows.list_found, own, number, self._rows.erasures))
        return self._rows.is_listed(self._erasure)

    def _delete(self, table: str) -> int:
        """Deletes the listed rows of `table`; returns how many."""
        days = self._rows.left(table)
        if days:
            unless_altered(partial(self._rows.delete, table, days))
        return sum(days.values())


def request_of(arguments: argparse.Namespace) -> ErasureRequest:
    """Returns the request; ends the process with status 2 and a sentence if the arguments make none."""
    if bool(arguments.where.strip()) == arguments.finish:
        arguments.refuse("--finish takes no condition" if arguments.finish else "name what to erase: --where")
    if arguments.apply and not arguments.finish and not arguments.reason.strip():
        arguments.refuse("--apply needs --reason")
    reason = arguments.reason.strip() or "finishes earlier erasures"
    return ErasureRequest(arguments.where, reason, arguments.by or getpass.getuser())


def act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    """Erases as the arguments ask; may raise `HeadraceError`."""
    request = request_of(arguments)
    with running(settings.lake, settings.log) as spark:
        tables = Tables(spark, location(settings.lake.path))
        Erase(tables, ErasureRows(tables), request, apply=arguments.apply, log=log).run()
