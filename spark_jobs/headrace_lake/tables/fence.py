"""One writer, and exactly once: Delta's transaction identifiers.

Every write of a batch carries (`APP_ID`, epoch × 2³² + batch). Delta silently skips a write whose number is not above the
table's last one, and rejects a write that another with the same `APP_ID` overtook. So a job that claims the next epoch in every
table, as each does when it starts, shuts out all older ones.

Because Delta skips silently, the job reads the table's log after each write to see what was committed. See
`transaction_log`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headrace_lake.spark.halt import HaltError, SupersededError
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, GAPS, QUARANTINE, SCHEMAS
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import RETAINED_APP
from headrace_lake.tables.transaction_log import TransactionLog

REPLAYED: Final = 1 << 31
"""The batch number of a replay: the proof tells its transaction from those of batches."""
_EPOCH_BITS: Final = 32
_CLAIM_ATTEMPTS: Final = 10
_COMMIT_ATTEMPTS: Final = 20
_ALTERED: Final = re.compile(
    r"(Metadata|Protocol)ChangedException|DELTA_(METADATA|PROTOCOL)_CHANGED"
    r"|Concurrent(Append|Delete\w+)Exception|DELTA_CONCURRENT_(APPEND|DELETE)"
)
"""Delta's refusals because the table is being altered, or its files merged."""


def transaction(epoch: int, batch: int) -> int:
    """Returns the transaction version of a batch."""
    return (epoch << _EPOCH_BITS) + batch


def claim_of(epoch: int) -> int:
    """Returns the transaction version that claims `epoch`: above every batch of the epoch before, below the first of its own."""
    return transaction(epoch, 0) - 1


def epoch_of(version: int) -> int:
    """Returns the epoch of a transaction version, of a batch or of a claim; 0 for a table that was never written."""
    return (version + 1) >> _EPOCH_BITS


class Fence:
    """Claims an epoch in the tables, writes under it, and notices a newer one."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._logs = {name: TransactionLog(tables.storage, tables.path(name)) for name in SCHEMAS}

    def epoch(self) -> int:
        """Returns the latest epoch of any table; 0 if none was claimed."""
        return max(epoch_of(log.latest()) for log in self._logs.values())

    def kept_from(self, name: str) -> int:
        """Returns the first day whose rows retention has kept in the table `name`, in days since 1970; -1: it dropped none."""
        log = self._logs[name]
        log.latest()
        return log.version_of(RETAINED_APP)

    def claim(self, settle: Callable[[int], Mapping[str, pa.Table]] = lambda _: {}) -> int:
        """Claims the next epoch in every table and returns it.

        Once a table holds the claim, no older job can write to it. Raises `SupersededError` if another job claims at the
        same time and wins; the first table decides. `settle` is called with the epoch when no other job can write events any
        more: it returns rows for `batches` and `gaps`, which go into the commits of the claim. It is called again if an older
        job has written to these meanwhile.
        """
        for _ in range(_CLAIM_ATTEMPTS):
            epoch = self.epoch() + 1
            if all(self._claim_in(name, epoch) for name in (EVENTS, QUARANTINE, DUPLICATES)):
                seen = {name: self.latest(name) for name in (BATCHES, GAPS)}
                rows = settle(epoch)
                if all(self._claim_in(name, epoch, rows.get(name), latest) for name, latest in seen.items()):
                    return epoch
        raise HaltError("the tables are too busy to claim: is another job landing on them?")

    def _claim_in(self, name: str, epoch: int, rows: pa.Table | None = None, seen: int | None = None) -> bool:
        """Appends the claim, and `rows`, if any. False: a running job committed in between, so try again.

        `seen`: the last transaction that `rows` take into account.
        """

        def latest_now() -> int:
            latest = log.latest()
            return latest if seen in {None, latest} else claim_of(epoch)  # then the append does nothing

        token = f"claim {epoch} {uuid.uuid4()}"
        log = self._logs[name]
        unless_overtaken(lambda: self._tables.append(name, rows, claim_of(epoch), token, latest_now))
        latest = log.latest()
        if token in log.tokens:
            return True
        if epoch_of(latest) >= epoch:
            raise SupersededError(
                f"another job claimed the tables at the same time (epoch {epoch_of(latest)}): this one stops"
            )
        return False

    def check(self, version: int) -> None:
        """Raises `SupersededError` if a table is beyond `version`: another job lands on the tables. Blocks on storage."""
        for log in self._logs.values():
            not_past(log.latest(), version)

    def check_epoch(self, epoch: int) -> None:
        """Raises `SupersededError` if an epoch after `epoch` was claimed."""
        self.check(claim_of(epoch + 1) - 1)

    def latest(self, name: str) -> int:
        """Returns the last transaction version of the table `name`, or -1. Blocks on storage."""
        return self._logs[name].latest()

    def write(
        self,
        name: str,
        rows: DataFrame | pa.Table,
        version: int,
        accept: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Appends `rows` to the table `name` under `version`, and makes sure that this write is committed.

        `accept`: see `append.append`. Raises `SupersededError` if another job took over, and `HaltError` if the log has no
        such commit.
        """
        token = f"batch {version} {uuid.uuid4()}"
        latest = self._logs[name].latest
        unless_overtaken(lambda: self._tables.append(name, rows, version, token, latest, accept))
        self._check_committed(name, version)
        tokens = self._logs[name].tokens
        if token not in tokens:
            raise HaltError(f"a write to the table {name} was not committed, and another job's was")
        tokens.clear()

    def forget_lines(self, first: int, epoch: int) -> None:
        """Deletes the lines of `batches` from the number `first` on, for a replay that holds `epoch`. Raises like `write`."""
        version = transaction(epoch, REPLAYED)
        unless_overtaken(lambda: self._tables.delete_lines(first, version))
        self._check_committed(BATCHES, version)

    def _check_committed(self, name: str, version: int) -> None:
        """Raises `HaltError` unless `version` is the last transaction of the table `name`; raises like `check`."""
        latest = self._logs[name].latest()
        not_past(latest, version)
        if latest != version:
            raise HaltError(f"a write to the table {name} was not committed, and no other job's was")


def not_past(latest: int, version: int) -> None:
    """Raises `SupersededError` if `latest`, the last transaction of a table, is beyond `version`."""
    if latest > version:
        raise SupersededError(
            f"another job has taken over: it claimed epoch {epoch_of(latest)} of the tables, this job holds epoch"
            f" {epoch_of(version)} and stops"
        )


def unless_altered(commit: Callable[[], object]) -> None:
    """Calls `commit`, again if properties, columns or protocol of the table changed meanwhile, or files that it has read were
    merged: nothing was committed then.

    Raises what `commit` raises for any other reason, and after a few attempts.
    """
    for left in reversed(range(_COMMIT_ATTEMPTS)):
        try:
            commit()
            return
        except (Py4JJavaError, PySparkException) as error:
            if not left or _ALTERED.search(str(error)) is None:
                raise


def unless_overtaken(commit: Callable[[], object]) -> None:
    """Calls `commit`. That another of our commits came before it is no error here: callers look at the log afterwards."""
    try:
        unless_altered(commit)
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        if "ConcurrentTransactionException" not in text and "DELTA_CONCURRENT_TRANSACTION" not in text:
            raise
