"""Follows a table's log: Delta's own files (``_delta_log/<version>.json``), a few small ones per look, no Spark job.

A log that is read wrongly would let an older job write, or shut out the job for ever. So what this module does not know stops
it: a commit that is missing, a table feature that may change what the log's files mean.
Source: Delta's protocol (PROTOCOL.md), for the actions and the names of the files.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.layout import DAY
from headrace_lake.tables.properties import APP_ID, is_foreign, strange_features

_AWAY: Final = 60.0
"""Seconds; the clean-up of the log (`layout.LOG_AGE`) never deletes younger commits."""
_TOKENS: Final = 1_000
"""How many of the last are kept: a writer looks for its own at once, and a follower of the log never does."""
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_AS_PATTERNS: Final = "__globPaths__"  # Spark's `DataSource.GLOB_PATHS_KEY`
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_DAY: Final = re.compile(rf"{DAY}=([^/]+)/")
_FORGETS: Final = "delta.setTransactionRetentionDuration"


class TransactionLog:
    """Follows one table's log and finds our transaction versions in it."""

    _parts: ClassVar[tuple[str, ...]] = ("protocol", "metaData", "txn")
    """Names of the actions, or of parts of one (``add.path``), that are read of a checkpoint."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage = storage
        self._table = table
        self._folder = f"{table}/_delta_log"
        self._next = -1  # the first log version that is not read yet; -1: none is
        self._listed = -1  # the highest commit that the last listing showed
        self._looked = 0.0  # Unix time
        self._versions: dict[str, int] = {}  # application -> its highest transaction version
        self.tokens: deque[str] = deque(maxlen=_TOKENS)
        """The `userMetadata` of the last commits that were read."""
        self.metadata: Mapping[str, Any] = {"id": "", "configuration": {}}
        """Delta's action `metaData`: the table's id, which stays the same when it is moved, its properties, its schema."""

    def latest(self) -> int:
        """Returns the highest transaction version that is committed, or -1. Blocks on storage.

        After a pause longer than `_AWAY`, the commits that come next may have been cleaned up. Then this reads the log
        again, from a newer checkpoint, if any: a process that was frozen would otherwise take the missing file
        for the end of the log. Raises `HaltError` if the log cannot be read as it must be.
        """
        if self._next < 0:
            self._begin()
            self._looked = time.time()
        self._read_on()
        if not 0 <= time.time() - self._looked < _AWAY:
            self._begin()
            self._read_on()
        self._looked = time.time()
        if _FORGETS in self.metadata["configuration"]:
            raise HaltError(
                f"the table {self._table} has the property {_FORGETS}: by it Delta forgets what has landed, which would land"
                f" again. ALTER TABLE … UNSET TBLPROPERTIES ('{_FORGETS}')"
            )
        if self._next <= self._listed:
            raise HaltError(
                f"the log of the table {self._table} lacks the commit {self._next}, though it has {self._listed}: somebody"
                " deleted it. Put the file back from a backup of the table, or copy its rows into a new table (see"
                " docs/lake-operate.md, When it stops)"
            )
        return self._versions.get(APP_ID, -1)

    def version_of(self, app: str) -> int:
        """Returns the highest transaction version of another application of ours, or -1. As of `latest`."""
        return self._versions.get(app, -1)

    @property
    def read_to(self) -> int:
        """The number of the newest commit, of any writer, as of `latest`; -1 without a table."""
        return self._next - 1

    def _read_on(self) -> None:
        while (text := self._storage.read(f"{self._folder}/{self._next:020d}.json")) is not None:
            for action in self._actions(self._next, text):
                self._take(self._next, action)
            self._next += 1

    def _actions(self, version: int, text: str) -> list[Mapping[str, Any]]:
        """Returns the actions of a commit. Raises `HaltError` if it is damaged: Delta's writer gives it its name when it is
        whole.
        """
        try:
            # StringIO ends a line at a line feed alone: names of clients, as they came, may have other breaks in them
            if actions := [json.loads(line) for line in io.StringIO(text)]:
                return actions
            why = "it is empty"
        except ValueError as error:
            why = str(error)
        raise HaltError(
            f"the log of the table {self._table} has the commit {version} damaged ({why}), as after a loss of power: put the file"
            " back from a backup of the table, or copy its rows into a new table (see docs/lake-operate.md, When it stops)"
        )

    def _take(self, version: int, action: Mapping[str, Mapping[str, Any]]) -> None:
        txn = action.get("txn")
        if txn is not None:
            self._versions[txn["appId"]] = max(self._versions.get(txn["appId"], -1), int(str(txn["version"])))
        protocol = action.get("protocol")
        if protocol is not None:
            self._check(protocol)
        metadata = action.get("metaData")
        if metadata is not None:
            self.metadata = metadata
        token = action.get("commitInfo", {}).get("userMetadata")
        if token is not None:
            self.tokens.append(str(token))

    def _begin(self) -> None:
        names = self._storage.names(self._folder)
        commits = [int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))]
        self._listed = max(commits, default=-1)
        newest = max((int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=-1)
        if newest < self._next:  # we have read further than the checkpoint: nothing is missing
            return
        if newest < 0 and commits and min(commits) > 0:
            raise HaltError(
                f"the log of the table {self._table} begins with the commit {min(commits)} and has no checkpoint of the classic"
                " form before it: ALTER TABLE … DROP FEATURE v2Checkpoint, or set delta.checkpointPolicy to classic and let"
                " Spark write a checkpoint (see docs/lake-operate.md, When it stops)"
            )
        self._next = newest + 1
        self._restart(newest)
        if newest < 0:
            return
        with tempfile.TemporaryDirectory(prefix="headrace-log-") as folder:
            local = self._storage.local(f"{self._folder}/{newest:020d}.checkpoint.parquet", Path(folder))
            found = pq.ParquetFile(local).read([*self._parts])
            for name in found.column_names:
                for action in pc.drop_null(found[name]).to_pylist(maps_as_pydicts="strict"):
                    self._take(newest, {name: action})

    def _restart(self, version: int) -> None:
        """Forgets the actions read: those of the checkpoint at `version` follow; -1: all commits do."""

    def _check(self, protocol: Mapping[str, Any]) -> None:
        """Raises `HaltError` if the table has features that we do not know."""
        if strange := strange_features(protocol):
            raise HaltError(
                f"the table {self._table} has the feature {' and '.join(strange)}, which this version does not know: it might"
                " misread the table's log. Take it away (ALTER TABLE … DROP FEATURE), or copy the rows into a new table"
            )


Ranges = Mapping[str, tuple[Any, Any]]
"""Column -> its least and its greatest value in a file, as far as the log has them, as JSON has them."""
Wanted = Callable[[Ranges], bool]


class File(NamedTuple):
    """A file of a table."""

    size: int  # bytes
    added: float  # Unix time, as its writer says
    stats: str | None  # JSON


class LiveFiles(TransactionLog):
    """The files of one table, of the version that `latest` has read last."""

    _parts = (*TransactionLog._parts, "add.path", "add.size", "add.modificationTime", "add.stats")

    def __init__(self, storage: Storage, table: str) -> None:
        super().__init__(storage, table)
        self.files: dict[str, File] = {}
        """By their names in the log."""

    def has(self, names: Iterable[str]) -> bool:
        """Returns whether the table has all files of these names in the log."""
        return all(name in self.files for name in names)

    def paths(self, wanted: Wanted = lambda _: True) -> list[str]:
        """Returns where the files are; `wanted`: see `live_rows`."""
        names = [name for name, file in self.files.items() if wanted(_ranges(file.stats))]
        return [unquote(name) if is_foreign(name) else f"{self._table}/{unquote(name)}" for name in names]

    @override
    def _restart(self, version: int) -> None:
        self.files = {}

    @override
    def _take(self, version: int, action: Mapping[str, Mapping[str, Any]]) -> None:
        super()._take(version, action)
        match action:
            case {"add": {"path": str(path), **rest}}:
                self.files[path] = File(
                    int(rest["size"]), int(rest.get("modificationTime", 0)) / 1000, rest.get("stats")
                )
            case {"remove": {"path": str(path)}}:
                self.files.pop(path, None)


def day_of(name: str) -> str:
    """Returns the day of the file of this name in the log, as text; empty in a table without days."""
    found = _DAY.match(name)
    return found[1] if found else ""


def live_rows(spark: SparkSession, table: str, columns: Sequence[str], wanted: Wanted = lambda _: True) -> DataFrame:
    """Returns `columns` of the rows that the table at the path `table` has now; none of them may be the one of its days.

    Delta's own read first computes the state of the table in Spark jobs, whose classes and generated code a start would load for
    nothing else. Files that are not `wanted` are left out. Blocks on storage; raises `HaltError` if the log cannot be read as it
    must be.
    """
    log = LiveFiles(Storage(spark), table)
    log.latest()
    there = StructType.fromJson(json.loads(log.metadata["schemaString"]))
    schema = StructType([there[name] for name in columns])
    files = log.paths(wanted)
    if files:
        return plain_parquet(spark.read.schema(schema), files)
    # `createDataFrame` of no rows starts workers of Python
    return spark.range(0).selectExpr(
        *(f"cast(null as {field.dataType.simpleString()}) as `{field.name}`" for field in schema)
    )


def plain_parquet(reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
    """Returns the rows of `files`, by their names as they are: Spark takes a name with one of ``[]{}*?`` for a pattern."""
    return reader.option(_AS_PATTERNS, "false").parquet(*files)


def since_time(column: str, moment: int, ranges: Ranges) -> bool:
    """Returns whether a file may have rows at or after a Unix time in ms."""
    last = _last_time(column, ranges)
    return last is None or last >= moment


def newest(storage: Storage, table: str, column: str) -> int:
    """Returns the latest Unix time, in ms, of a column by the statistics of the table's files; 0 without any. Blocks, and raises,
    as `live_rows`.
    """
    log = LiveFiles(storage, table)
    log.latest()
    return max((_last_time(column, _ranges(file.stats)) or 0 for file in log.files.values()), default=0)


def _last_time(column: str, ranges: Ranges) -> int | None:
    with suppress(KeyError, TypeError, ValueError):  # beyond Python's calendar
        return int(datetime.fromisoformat(ranges[column][1]).timestamp() * 1000) + 1  # Delta cuts off microseconds
    return None


def _ranges(stats: str | None) -> Ranges:
    found: Mapping[str, Any] = json.loads(stats or "{}")
    low, high = found.get("minValues", {}), found.get("maxValues", {})
    return {name: (low[name], high[name]) for name in low.keys() & high.keys()}
