"""One writer, and exactly once: Delta's transaction identifiers.

Every write of a batch carries (`APP_ID`, epoch × 2³² + batch). Delta silently skips a write whose number is not above the
table's last one, and rejects a write that another with the same `APP_ID` overtook. So a batch that is written again after a
crash counts once, and a job that claims the next epoch in every table shuts out all older jobs.

Because Delta skips silently, the job reads the table's log after each write to see what was committed. See
`transaction_log`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace_lake.spark.halt import HaltError, SupersededError
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.altered import unless_altered
from headrace_lake.tables.append import Appender
from headrace_lake.tables.layout import BATCHES, EVENTS, GAPS, QUARANTINE, SCHEMAS
from headrace_lake.tables.properties import APP_ID
from headrace_lake.tables.transaction_log import TransactionLog

REPLAYED: Final = 1 << 31
"""The batch number of a replay's first step: the proof tells its transactions from those of batches."""
_EPOCH_BITS: Final = 32
_CLAIM_ATTEMPTS: Final = 10


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

    def __init__(self, spark: SparkSession, lake: str) -> None:
        self._storage = Storage(spark)
        self._spark = spark
        self._lake = lake
        self._appender = Appender(spark, APP_ID)
        self._logs = {name: TransactionLog(self._storage, f"{lake}/{name}") for name in SCHEMAS}

    def epoch(self) -> int:
        """Returns the latest epoch of any table; 0 if none was claimed."""
        return max(epoch_of(log.latest()) for log in self._logs.values())

    def lake_id(self) -> str:
        """Returns the identity of these tables, also after a move: Delta's id of `batches`."""
        return str(self.metadata(BATCHES)["id"])

    def never_claimed(self, name: str) -> bool:
        """Returns whether no job has ever claimed the table `name`."""
        return epoch_of(self._log(name).latest()) == 0

    def properties(self, name: str) -> Mapping[str, str]:
        """Returns the properties of the table `name`."""
        log = self._log(name)
        log.latest()
        return log.properties

    def metadata(self, name: str) -> Mapping[str, Any]:
        """Returns Delta's action `metaData` of the table `name`. Blocks on storage; no Spark job unless a checkpoint has to be
        read.
        """
        log = self._log(name)
        log.latest()
        return log.metadata

    def rows_of(self, name: str, version: int) -> int | None:
        """Returns how many rows the write `version` added to the table `name`; None if its log no longer has it."""
        return self._log(name).rows_of(version)

    def claim(self, gaps: Callable[[int], DataFrame | None] = lambda _: None) -> int:
        """Claims the next epoch in every table, `batches` first, and returns it.

        Once a table holds the claim, no older job can write to it. Raises `SupersededError` if another job claims at the
        same time and wins; the first table decides. `gaps` is called last, with the epoch, when no other job can land any
        more: its rows go into the table of gaps in the same commit as the claim. It is called again if an older claim came
        in between there, which may have recorded the same gaps.
        """
        for _ in range(_CLAIM_ATTEMPTS):
            epoch = self.epoch() + 1
            if all(self._claim_in(name, epoch) for name in (BATCHES, EVENTS, QUARANTINE)):
                seen = self.latest(GAPS)
                if self._claim_in(GAPS, epoch, gaps(epoch), seen):
                    return epoch
        raise HaltError("the tables are too busy to claim: is another job landing on them?")

    def _claim_in(self, name: str, epoch: int, rows: DataFrame | None = None, seen: int | None = None) -> bool:
        """Appends the claim, and `rows`, if any. False: a running job committed in between, so try again.

        `seen`: the last transaction that `rows` take into account.
        """

        def latest_now() -> int:
            latest = log.latest()
            return latest if seen in {None, latest} else claim_of(epoch)  # then the append does nothing

        token = f"claim {epoch} {uuid.uuid4()}"
        log, path = self._log(name), f"{self._lake}/{name}"
        empty = self._spark.read.format("delta").load(path).where("false")
        added = empty if rows is None else rows
        _unless_overtaken(lambda: self._appender.append(path, added, claim_of(epoch), token, latest_now))
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
        for name, log in self._logs.items():
            _not_past(name, log.latest(), version)

    def check_epoch(self, epoch: int) -> None:
        """Raises `SupersededError` if an epoch after `epoch` was claimed."""
        self.check(claim_of(epoch + 1) - 1)

    def check_batch(self, epoch: int, batch: int) -> None:
        """Raises `SupersededError` if a table is beyond `batch` of `epoch`: a checkpoint that ends there is too old.

        The batch before the first, -1, is the claim.
        """
        self.check(transaction(epoch, batch))

    def latest(self, name: str) -> int:
        """Returns the last transaction version of the table `name`, or -1. Blocks on storage."""
        return self._log(name).latest()

    def written(self, name: str, version: int) -> bool:
        """Returns whether the table `name` already holds the write with `version`. Raises like `check`."""
        latest = self._log(name).latest()
        _not_past(name, latest, version)
        return latest == version

    def write(
        self,
        name: str,
        rows: DataFrame | pa.Table,
        version: int,
        accept: Callable[[Sequence[str]], None] | None = None,
    ) -> bool:
        """Appends `rows` to the table `name` under `version` and makes sure that a write of this batch is committed.

        `accept`: see `Appender.append`.

        True: this write was committed. False: another run's write of the same batch was, and Delta skipped this one. (A JVM
        that has lost its driver may still commit its batch after the next run has begun.) Raises `SupersededError` if
        another job took over, and `HaltError` if no commit of this batch is in the log.
        """
        token = f"batch {version} {uuid.uuid4()}"
        latest = self._log(name).latest
        _unless_overtaken(lambda: self._appender.append(f"{self._lake}/{name}", rows, version, token, latest, accept))
        if not self.written(name, version):
            raise HaltError(f"a write to the table {name} was not committed, and no other job's was")
        tokens = self._log(name).tokens
        ours = token in tokens
        tokens.clear()
        return ours

    def replace(self, name: str, rows: DataFrame, condition: str, version: int) -> None:
        """Replaces the rows of the table `name` that meet `condition` by `rows`, in one commit. Raises like `write`."""
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        writer = writer.option("txnAppId", APP_ID).option("txnVersion", version)
        _unless_overtaken(lambda: writer.save(f"{self._lake}/{name}"))
        if not self.written(name, version):
            raise HaltError(f"a write to the table {name} was not committed, and no other job's was")

    def _log(self, name: str) -> TransactionLog:
        return self._logs[name]


def _not_past(name: str, latest: int, version: int) -> None:
    if latest <= version:
        return
    if epoch_of(latest) > epoch_of(version):
        raise SupersededError(
            f"another job has taken over: it claimed epoch {epoch_of(latest)} of the tables, this job holds epoch "
            f"{epoch_of(version)} and stops"
        )
    raise SupersededError(
        f"another job has gone on with this checkpoint, or the checkpoint is an old copy: the table {name} holds batch "
        f"{latest - transaction(epoch_of(latest), 0)} of epoch {epoch_of(latest)}, this job is at batch "
        f"{version - transaction(epoch_of(version), 0)} and stops"
    )


def _unless_overtaken(commit: Callable[[], object]) -> None:
    """Calls `commit`. That another of our commits came before it is no error here: callers look at the log afterwards."""
    try:
        unless_altered(commit)
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        if "ConcurrentTransactionException" not in text and "DELTA_CONCURRENT_TRANSACTION" not in text:
            raise
