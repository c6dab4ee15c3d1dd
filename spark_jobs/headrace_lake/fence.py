"""One writer, and exactly once: Delta's transaction identifiers.

Every write of a batch carries (`APP_ID`, epoch × 2³² + batch). Delta skips, without a word, a write whose number is not above
the table's last one, and fails one that another with the same `APP_ID` has overtaken. So a batch that is written again
after a crash counts once, and a job that claims the next epoch in every table shuts all older jobs out.

Because Delta skips silently, a job asks the table's log what was really committed after each write and before it goes on.
The log is read as the Delta protocol describes it (``_delta_log/<version>.json``): a few small files, no Spark job.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace_lake.append import Appender
from headrace_lake.halt import HaltError, SupersededError
from headrace_lake.storage import Storage
from headrace_lake.tables import BATCHES, EVENTS, GAPS, QUARANTINE, SCHEMAS

APP_ID: Final = "headrace"
FIRST_EPOCH: Final = 1
_EPOCH_BITS: Final = 32
_CLAIM_ATTEMPTS: Final = 10
_AWAY: Final = 60.0
"""Seconds; the log's clean-up (`settings.MIN_LOG_AGE`) leaves younger commits alone."""
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.\d+\.\d+)?\.parquet")


def transaction(epoch: int, batch: int) -> int:
    """The transaction version of a batch."""
    return (epoch << _EPOCH_BITS) + batch


def claim_of(epoch: int) -> int:
    """The transaction version that claims `epoch`: above all batches of the one before, below its own first."""
    return transaction(epoch, 0) - 1


def epoch_of(version: int) -> int:
    """The epoch that a transaction version, of a batch or of a claim, belongs to; 0 for a table never written."""
    return (version + 1) >> _EPOCH_BITS


class Log:
    """Follows one table's log for our transaction versions."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage = storage
        self._folder = f"{table}/_delta_log"
        self._next = -1  # the first log version not read yet; -1: nothing read
        self._checkpoint: list[str] = []  # the files of Delta's checkpoint that reading began with
        self._looked = 0.0  # Unix time
        self._latest = -1
        self.tokens: set[str] = set()
        """The `userMetadata` of the commits seen."""
        self.table_id = ""
        """Delta's id of the table: the same as long as it lives, wherever it is moved."""

    def latest(self) -> int:
        """The highest transaction version committed so far; -1 when there is none. Blocks on storage.

        Commits older than `_AWAY` may have been cleaned up meanwhile: after such a pause the log is read from a newer
        checkpoint, if there is one, or a process that was frozen would take the missing file for the log's end.
        """
        if self._next < 0:
            self._begin()
            self._looked = time.time()
        self._read_on()
        if not 0 <= time.time() - self._looked < _AWAY:
            self._begin()
            self._read_on()
        self._looked = time.time()
        return self._latest

    def _read_on(self) -> None:
        while (text := self._storage.read(f"{self._folder}/{self._next:020d}.json")) is not None:
            for line in text.splitlines():
                self._take(self._next, json.loads(line))
            self._next += 1

    def _take(self, version: int, action: Mapping[str, Mapping[str, Any]]) -> None:
        txn = action.get("txn")
        if txn is not None and txn["appId"] == APP_ID:
            self._latest = max(self._latest, int(str(txn["version"])))
        metadata = action.get("metaData")
        if metadata is not None:
            self.table_id = str(metadata["id"])
        token = action.get("commitInfo", {}).get("userMetadata")
        if token is not None:
            self.tokens.add(str(token))

    def _begin(self) -> None:
        names = self._storage.names(self._folder)
        matches = [match for name in names if (match := _CHECKPOINT.fullmatch(name))]
        newest = int(matches[-1][1]) if matches else -1
        if newest < self._next:  # what was read is not before it: nothing is missing
            return
        self._next = newest + 1
        self._checkpoint = [f"{self._folder}/{match[0]}" for match in matches if int(match[1]) == newest]
        if not matches:
            return
        rows = (
            self._storage.spark.read.parquet(*self._checkpoint)
            .where(f"txn.appId = '{APP_ID}' or metaData.id is not null")
            .select("txn.version", "metaData.id")
            .collect()
        )
        self._latest = max([self._latest, *(row[0] for row in rows if row[0] is not None)])
        self.table_id = next((row[1] for row in rows if row[1] is not None), "")


class Fence:
    """The transaction versions of the tables: claims an epoch, writes under it, notices a newer one."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        storage = Storage(spark)
        self._spark = spark
        self._paths = {name: f"{lake}/{name}" for name in SCHEMAS}
        self._appender = Appender(spark, APP_ID)
        self._logs = {name: Log(storage, path) for name, path in self._paths.items()}

    def epoch(self) -> int:
        """The latest epoch of any table; 0 when nobody has claimed one."""
        return max(epoch_of(log.latest()) for log in self._logs.values())

    def lake_id(self) -> str:
        """Which tables these are, wherever they are moved: Delta's id of `batches`."""
        self._logs[BATCHES].latest()
        return self._logs[BATCHES].table_id

    def claim(self, gaps: Callable[[int], DataFrame | None] = lambda _: None) -> int:
        """Claims the next epoch in every table, `batches` first, and returns it.

        From its commit in a table on, no older job can write there. Raises `SupersededError` when another job claims at the
        same time and wins: the first table decides. `gaps` is asked last, with the epoch, when nobody else can land any
        more: the rows that it returns go into the table of gaps together with the claim, all or none.
        """
        for _ in range(_CLAIM_ATTEMPTS):
            epoch = self.epoch() + 1
            if all(self._claim_in(name, epoch) for name in (BATCHES, EVENTS, QUARANTINE)) and self._claim_in(
                GAPS, epoch, gaps(epoch)
            ):
                return epoch
        raise HaltError("the tables are too busy to claim: is another job landing on them?")

    def _claim_in(self, name: str, epoch: int, rows: DataFrame | None = None) -> bool:
        """Appends `rows`, or none. False: a running job's commit came in between and the claim must be tried again."""
        token = f"claim {epoch} {uuid.uuid4()}"
        log = self._logs[name]
        empty = self._spark.read.format("delta").load(self._paths[name]).where("false")
        try:
            self._appender.append(
                self._paths[name], empty if rows is None else rows, claim_of(epoch), token, log.latest
            )
        except (Py4JJavaError, PySparkException) as error:
            if not _overtaken(error):
                raise
        latest = log.latest()
        if token in log.tokens:
            return True
        if epoch_of(latest) >= epoch:
            raise SupersededError(
                f"another job claimed the tables at the same time (epoch {epoch_of(latest)}): this one stops"
            )
        return False

    def check(self, version: int) -> None:
        """Raises `SupersededError` when a table is past `version`: another job lands on the tables. Blocks on storage."""
        for name, log in self._logs.items():
            _not_past(name, log.latest(), version)

    def check_epoch(self, epoch: int) -> None:
        """Raises `SupersededError` when a newer epoch than `epoch` has been claimed."""
        self.check(claim_of(epoch + 1) - 1)

    def check_batch(self, epoch: int, batch: int) -> None:
        """Raises `SupersededError` when a table is past `batch` of `epoch`: where a checkpoint that ends there is too old."""
        self.check(max(transaction(epoch, batch), claim_of(epoch)))

    def written(self, name: str, version: int) -> bool:
        """Whether the table `name` already has what a batch with `version` writes. Raises as `check`."""
        latest = self._logs[name].latest()
        _not_past(name, latest, version)
        return latest == version

    def write(self, name: str, rows: DataFrame, version: int) -> bool:
        """Appends `rows` to the table `name` under `version` and makes sure that a write of this batch is committed.

        False: another run's of the same batch was, and this one did not count: a JVM that has lost its driver may commit
        what it is at while the next run has begun. Raises `SupersededError` when another job was faster, `HaltError` when the
        commit is nowhere to be found.
        """
        token = f"batch {version} {uuid.uuid4()}"
        try:
            self._appender.append(self._paths[name], rows, version, token, self._logs[name].latest)
        except (Py4JJavaError, PySparkException) as error:
            if not _overtaken(error):
                raise
        if not self.written(name, version):
            raise HaltError(f"a write to the table {name} was not committed, and nobody else's was either")
        tokens = self._logs[name].tokens
        ours = token in tokens
        tokens.clear()
        return ours

    def replace(self, name: str, rows: DataFrame, condition: str, version: int) -> None:
        """Puts `rows` in the place of the rows of the table `name` that meet `condition`, in one commit. Raises as `write`."""
        try:
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", condition)
            writer.option("txnAppId", APP_ID).option("txnVersion", version).save(self._paths[name])
        except (Py4JJavaError, PySparkException) as error:
            if not _overtaken(error):
                raise
        if not self.written(name, version):
            raise HaltError(f"a write to the table {name} was not committed, and nobody else's was either")


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


def _overtaken(error: BaseException) -> bool:
    return "ConcurrentTransactionException" in str(error) or "DELTA_CONCURRENT_TRANSACTION" in str(error)
