"""The Spark session for landing: the options that the rows depend on, and those that make landing fast (measured)."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final, cast
from urllib.parse import urlsplit

from headrace_common.operations.errors import ConfigError, HeadraceError
from headrace_common.operations.settings import LogSettings
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headrace_lake.configuration.settings import LakeSettings, location
from headrace_lake.spark.jvm import CompilerError, define, java_class
from headrace_lake.spark.log_store import install
from headrace_lake.spark.storage import Storage

JVM_END_SECONDS: Final = 5.0
"""Seconds that a JVM that no longer answers may take to end."""

LOCAL_FILES: Final = "fs.AbstractFileSystem.file.impl"
"""Hadoop's name for the class by which the checkpoint and Delta's log are written on local disks."""
_HADOOPS_LOCAL_FILES: Final = "org.apache.hadoop.fs.local.LocalFs"

DELTA_VERSION: Final = "4.4.0"
"""The version of Delta whose steps `append` and `compaction` take."""

_LOCAL: Final = "local[*]"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it: the JVM already runs

ZSTD_LEVEL: Final = "parquet.compression.codec.zstd.level"
"""Hadoop's name for the compression level of Parquet, 1 to 22."""

# The generated method that decodes a record exceeds 8,000 bytes, and by default the JIT does not compile such methods.
# Interpreted, a record costs twice as much.
_JIT: Final = "-XX:-DontCompileHugeMethods"

# Planning and committing a batch runs much code, none of it often: by default the JIT optimises it for minutes, with nearly as
# much CPU as the batches take. So a method must run ten times as often as usual; what runs for each record soon does. More code
# stays as it is measured for that: 81 MB after seven minutes, of 120 that the JVM keeps for it by default.
_JIT_OF_DRIVER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000 -XX:ReservedCodeCacheSize=480m"
)

# A run with an end is mostly starting: half of its CPU would go into optimising code that does not run long.
_JIT_OF_ONCE: Final = "-XX:TieredStopAtLevel=1"
# A batch leaves much garbage and keeps nearly nothing, and pauses are harmless. Java's default collector keeps Kafka's and
# Parquet's buffers, larger than half of its regions, among old objects, and marks the whole heap for them beside the batch again
# and again: up to twice the CPU. The ids that are remembered are old objects: three quarters of the heap are for such. By default
# the whole heap is also collected each time that some megabytes of classes more are loaded, five times in a start.
_COLLECTOR: Final = "-XX:+UseParallelGC -XX:NewRatio=3 -XX:MetaspaceSize=256m"
_JAVA_OPTIONS: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options for each JVM."""
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"

_NEEDED: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.ansi.enabled": "false",  # no content of a record may throw
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""The rows depend on these: other values are refused."""

UNLIKE: Final = ("event_id", "event_time_text", "body", "payload", "attributes")
"""Columns whose values hardly repeat: Parquet would discard their dictionary, and their ranges would skip no page."""

_TUNED: Final = {
    "spark.sql.streaming.stopTimeout": "10s",  # else a query's end waits for its Kafka client, which waits for brokers
    "spark.sql.parquet.compression.codec": "zstd",
    f"spark.hadoop.{ZSTD_LEVEL}": "1",  # merged files are compressed more
    "spark.hadoop.parquet.size.statistics.enabled": "false",
    **{f"spark.hadoop.parquet.enable.dictionary#{column}": "false" for column in (*UNLIKE, "event_time", "offset")},
    **{f"spark.hadoop.parquet.column.statistics.enabled#{column}": "false" for column in UNLIKE},
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # four calls to the JVM for each function of a column
    "spark.sql.adaptive.enabled": "false",  # a batch has no shuffle to adapt, and planning twice costs time
    "spark.sql.shuffle.partitions": "2",
    # A tenth of planning a batch: the planner would infer from each expression which columns are not null, and use none of it.
    "spark.sql.constraintPropagation.enabled": "false",
    # Rows of one day, or of two at midnight, go to their files as they come; by default they are sorted by day before.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    "spark.databricks.delta.snapshotPartitions": "1",  # the default is 50 tasks for each commit
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    # One for each partition. By default Spark keeps 64, and with more partitions would connect each again in every batch.
    "spark.kafka.consumer.cache.capacity": "2048",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.ui.showConsoleProgress": "false",
}
"""Tuning for landing. LAKE__SPARK and spark-submit's ``--conf`` override it."""

_ALONE: Final = {"spark.ui.enabled": "false"}
"""Tuning for a `local` master, which serves a status page of its own. On a cluster, people look at Spark's pages."""


def session(settings: LakeSettings, log: LogSettings, *, once: bool = False) -> SparkSession:
    """Starts Spark, or uses the one that spark-submit started. Blocks for seconds; needs JAVA_HOME or java.

    `once`: the run ends by itself. Raises `ConfigError` for settings that cannot take effect.
    """
    submitted = _SUBMITTED in os.environ
    if submitted and settings.jars is not None:
        raise ConfigError("LAKE__JARS comes too late under spark-submit: name the jars there (--jars)")
    if not submitted and (settings.master or _LOCAL).startswith("local"):
        for name, path in (("LAKE__PATH", settings.path), ("LAKE__CHECKPOINT", settings.checkpoint)):
            check_folder(name, location(path))
    given: dict[str, str] = {}
    if submitted:
        SparkContext._ensure_initialized()
        given = dict(SparkConf().getAll())
    # a folder that is there: Spark would make `spark-warehouse` where it was started
    wanted = settings.spark if submitted else {"spark.sql.warehouse.dir": tempfile.gettempdir(), **settings.spark}
    builder = SparkSession.Builder().appName("headrace-lake")
    for name, value in session_options(given, wanted, settings.master).items():
        builder = builder.config(name, value)
    if settings.master or not submitted:
        builder = builder.master(settings.master or _LOCAL)
    if submitted:
        spark = builder.getOrCreate()
    else:
        with as_file(files(__package__) / "log4j2.properties") as logging:
            builder = builder.config(_DRIVER_OPTIONS, driver_options(settings, log, logging, once=once))
            builder = builder.config("spark.driver.memory", settings.driver_memory)
            spark = _with_jars(builder, settings).getOrCreate()
    _write_local_files(spark, location(settings.path), location(settings.checkpoint))
    hadoop = cast("Any", spark)._jsc.hadoopConfiguration()
    # only now: the process list shows the options that Spark starts with
    for name, secret in settings.spark_secrets.items():
        hadoop.set(name.removeprefix("spark.hadoop."), secret.get_secret_value())
    if (version := java_class(spark, "io.delta.package").VERSION()) != DELTA_VERSION:
        raise ConfigError(f"Delta is {version}: the job takes steps of its writer that are those of {DELTA_VERSION}")
    return spark


def driver_options(settings: LakeSettings, log: LogSettings, logging: Path, *, once: bool) -> str:
    """Returns the options of the driver's Java, as a shell would take them. `logging`: the file that configures its log."""
    own = settings.spark.get(_DRIVER_OPTIONS, "")
    given = (own, *(os.environ.get(name, "") for name in _JAVA_OPTIONS))
    # Java's own folder is /tmp whatever TMPDIR says, and where nothing there may be executed, it has no zstd
    named = {"log4j2.configurationFile": logging, "java.io.tmpdir": tempfile.gettempdir()}
    options = [
        _JIT,
        _JIT_OF_DRIVER,
        *(shlex.quote(f"-D{name}={path}") for name, path in named.items()),
        f"-Dheadrace.jvm.level={'warn' if log.level == 'debug' else 'off'}",
        "" if any("GC" in options for options in given) else _COLLECTOR,  # Java does not start with two collectors
        _JIT_OF_ONCE if once else "",
        own,
    ]
    return " ".join(filter(None, options))


def check_folder(name: str, path: str) -> None:
    """Raises `ConfigError` if `path` is a local folder that this process can neither write to nor make.

    Delta would only say that the path does not exist. A volume that belongs to another user is the usual cause.
    """
    folder = _existing(path)
    if folder is not None and (not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK)):
        raise ConfigError(f"{name} ({path}): user {os.getuid()} cannot write to {folder}")


def has_links(path: str) -> bool:
    """Returns whether a file in the local folder `path` can get a second name; true for a path elsewhere."""
    folder = _existing(path)
    if folder is None:
        return True
    try:
        with tempfile.TemporaryDirectory(prefix=".headrace-", dir=folder) as made:
            Path(made, "file").touch()
            os.link(Path(made, "file"), Path(made, "link"))
    except OSError:
        return False
    return True


def _existing(path: str) -> Path | None:
    """Returns the local folder `path`, or the innermost one above it that is there; None for a path elsewhere."""
    if urlsplit(path).scheme not in {"", "file"}:
        return None
    folder = Path(urlsplit(path).path)
    while not os.path.lexists(folder):
        folder = folder.parent
    return folder


def remarks(spark: SparkSession, lake: str) -> list[str]:
    """Returns warnings about the place of the `lake`, one sentence each. Blocks on storage."""
    weak = install(spark, lake)
    said = [weak] if weak else []
    own = str(cast("Any", spark)._jsc.hadoopConfiguration().get(LOCAL_FILES))
    if own == _HADOOPS_LOCAL_FILES and Storage(spark).scheme(lake) == "file":
        said.append(
            f"LAKE__PATH ({lake}): commits cannot be hard links (that takes a local master, folders that have such links, and a"
            " JVM that compiles our class): a second driver could overwrite its commits, so run one at a time"
        )
    return said


def session_options(given: Mapping[str, str], wanted: Mapping[str, str], master: str = "") -> dict[str, str]:
    """Returns the options of the session; `given`: spark-submit's, `wanted`: those of LAKE__SPARK, `master`: LAKE__MASTER."""
    for source, options in (("LAKE__SPARK", wanted), ("spark-submit", given)):
        wrong = [name for name, value in _NEEDED.items() if options.get(name, value) != value]
        if wrong:
            raise ConfigError(f"{source} sets {wrong[0]} to {options[wrong[0]]}: the job needs {_NEEDED[wrong[0]]}")
    alone = (master or given.get("spark.master", _LOCAL)).startswith("local")
    tuned = {name: value for name, value in (_TUNED | (_ALONE if alone else {})).items() if name not in given}
    executors = [_JIT, given.get(_EXECUTOR_OPTIONS, ""), wanted.get(_EXECUTOR_OPTIONS, "")]
    return {**tuned, **wanted, **_NEEDED, _EXECUTOR_OPTIONS: " ".join(filter(None, executors))}


@contextmanager
def running(settings: LakeSettings, log: LogSettings, *, once: bool = False) -> Iterator[SparkSession]:
    """Yields a `session` that ends with the block. Raises `HeadraceError` if the JVM has died meanwhile: nothing else says so."""
    spark = session(settings, log, once=once)
    process: Popen[bytes] | None = getattr(cast("Any", SparkContext)._gateway, "proc", None)  # None under spark-submit
    try:
        install(spark, location(settings.path))
        yield spark
    except Exception as error:
        if process is None or (status := _end_of(process, error)) is None:
            raise
        how = (
            f"was ended by signal {-status} ({signal.strsignal(-status)})"
            if status < 0
            else f"ended with status {status}"
        )
        raise HeadraceError(f"Spark's JVM (pid {process.pid}) {how}") from error
    finally:
        if process is None or process.poll() is None:
            spark.stop()


def _write_local_files(spark: SparkSession, *folders: str) -> None:
    """Sets our class for local files; not on a cluster, whose executors lack it, where the JVM may compile nothing, where one of
    the `folders` has no hard links, or if another class is chosen.
    """
    hadoop = cast("Any", spark)._jsc.hadoopConfiguration()
    one_jvm = str(spark.sparkContext.master).split("[", 1)[0] == "local"
    if not one_jvm or str(hadoop.get(LOCAL_FILES)) != _HADOOPS_LOCAL_FILES or not all(map(has_links, folders)):
        return
    with suppress(CompilerError):
        define(spark, __package__, "LocalFiles")
        hadoop.set(LOCAL_FILES, "headrace.lake.LocalFiles")


def _end_of(process: Popen[bytes], error: Exception) -> int | None:
    """Returns the exit status; None if it still runs. Connections to a JVM that dies are lost some time before."""
    lost = isinstance(error, OSError | Py4JError) and not isinstance(error, Py4JJavaError)
    with suppress(TimeoutExpired):
        return process.wait(JVM_END_SECONDS) if lost else process.poll()
    return None


def _with_jars(builder: SparkSession.Builder, settings: LakeSettings) -> SparkSession.Builder:
    """Adds the jars of LAKE__JARS to those that LAKE__SPARK names."""
    if settings.jars is None:
        return builder
    jars = sorted(str(path.absolute()) for path in Path(settings.jars).glob("*.jar"))
    # with one JVM nothing is sent to executors
    local = (settings.master or _LOCAL).startswith("local")
    name, separator = ("spark.driver.extraClassPath", os.pathsep) if local else ("spark.jars", ",")
    return builder.config(name, separator.join([*jars, *filter(None, [settings.spark.get(name)])]))
