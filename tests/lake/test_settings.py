"""Settings of the landing job: contradictions end with status 78 and one line, before Spark starts; what the others choose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_common.operations.settings import LogSettings, load
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.dedup import choose
from headrace_lake.dedup.arrays_index import ArraysIndex
from headrace_lake.dedup.choose import open_index
from headrace_lake.spark import engine
from headrace_lake.spark.engine import ZSTD_LEVEL, session_options
from headrace_lake.spark.jvm import CompilerError
from structlog.testing import CapturingLogger


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "/x/lake"}, "must not contain each other"),
        ({"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "/x/lake/checkpoint"}, "must not contain each other"),
        ({"LAKE__PATH": "s3a://b/lake", "LAKE__CHECKPOINT": "s3a://b//x/../lake/c"}, "must not contain each other"),
        ({"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "file:///x/lake/c"}, "must not contain each other"),
        ({"LAKE__PATH": "file:/x/lake", "LAKE__CHECKPOINT": "/x/lake/c"}, "must not contain each other"),
        ({"LAKE__PATH": "/x/[old]/lake"}, "name a folder whose path has no ["),
        ({"LAKE__PATH": ""}, "must not be empty"),
        ({"LAKE__HORIZON": "inf"}, "HEADRACE_LAKE__HORIZON"),
        ({"LAKE__DRIVER_MEMORY": "lots"}, "HEADRACE_LAKE__DRIVER_MEMORY"),
        ({"LAKE__JARS": "/nowhere"}, "has no jars"),
        ({"LAKE__SPARK": '{"fs.s3a.endpoint": "x"}'}, "Spark has no option fs.s3a.endpoint"),
        ({"LAKE__SPARK": '{"spark.hadoop.fs.s3a.secret.key": "x"}'}, "spark.hadoop.fs.s3a.secret.key is a secret"),
        ({"LAKE__SPARK": '{"spark.hadoop.fs.azure.account.key.a": "x"}'}, "fs.azure.account.key.a is a secret"),
        ({"LAKE__SPARK_SECRETS": '{"spark.ssl.keyPassword": "x"}'}, "in SPARK_SECRETS spark.hadoop."),
        ({"LAKE__RETENTION_DAYS": "30", "LAKE__MAINTENANCE_SHARE": "0"}, "needs a LAKE__MAINTENANCE_SHARE above 0"),
        ({"LAKE__RETENTION_DAYS": "1", "LAKE__HORIZON": "86401"}, "LAKE__HORIZON is longer than LAKE__RETENTION_DAYS"),
        ({"KAFKA__QUARANTINE_TOPIC": "headrace.events"}, "two are the same"),
        ({"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "/x/lake-checkpoint"}, ""),
        ({"LAKE__HORIZON": "0", "LAKE__DEDUP": "arrays", "LAKE__DEDUP_MEMORY": "1048576"}, ""),
        ({"LAKE__SPARK": '{"spark.hadoop.fs.s3a.path.style.access": "true", "spark.executor.instances": "2"}'}, ""),
        ({"LAKE__SPARK_SECRETS": '{"spark.hadoop.fs.s3a.secret.key": "x"}'}, ""),
        ({"LAKE__RETENTION_DAYS": "1", "LAKE__HORIZON": "86400"}, ""),
        ({"LISTEN__NONSENSE": "a section that this process lacks"}, ""),
    ],
)
def test_a_contradiction_is_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str) -> None:
    """`said`: empty if it only looks like one."""
    for name, value in variables.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    if not said:
        load(LakeProcessSettings)
        return
    with pytest.raises(ConfigError) as refused:
        load(LakeProcessSettings)
    assert said in str(refused.value)


def test_a_checkpoint_is_found_inside_the_lake_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lake" / "events").mkdir(parents=True)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "lake" / "events")
    with pytest.raises(ValueError, match="must not contain each other"):
        LakeSettings(path=str(tmp_path / "lake"), checkpoint=str(tmp_path / "elsewhere" / "checkpoint"))


def test_the_process_exits_with_78_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LAKE__TRIGGER", "often")
    done = run("-m", "headrace_lake", "--once")
    assert done.returncode == EXIT_CONFIG
    (said,) = done.stderr.splitlines()
    assert said.startswith("headrace_lake: HEADRACE_LAKE__TRIGGER: ")


def test_only_what_just_costs_may_be_set() -> None:
    zone = {"spark.sql.session.timeZone": "Europe/Vienna"}
    for source, pair in (("spark-submit", (zone, {})), ("LAKE__SPARK", ({}, zone))):
        with pytest.raises(
            ConfigError, match=f"{source} sets spark.sql.session.timeZone to Europe/Vienna: .* needs UTC"
        ):
            session_options(*pair)
    ours = session_options({}, {})
    pages, level, options = "spark.ui.enabled", f"spark.hadoop.{ZSTD_LEVEL}", "spark.executor.extraJavaOptions"
    for given, wanted, master, shown in (
        ({}, {}, "", "false"),
        ({pages: "true"}, {}, "", None),  # as the context has it
        ({}, {pages: "true"}, "", "true"),
        ({}, {}, "spark://host:7077", None),  # on a cluster, Spark's pages are served
        ({"spark.master": "yarn"}, {}, "", None),
    ):
        assert session_options(given, wanted, master).get(pages) == shown
    assert level not in session_options({level: "9"}, {})
    assert session_options({}, {level: "9"})[level] == "9"
    assert session_options({options: "-Da=1"}, {options: "-Db=2"})[options] == f"{ours[options]} -Da=1 -Db=2"


def test_jars_that_come_too_late_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as spark-submit sets it
    with pytest.raises(ConfigError, match="LAKE__JARS comes too late under spark-submit: name the jars there"):
        engine.session(LakeSettings(jars=tmp_path), LogSettings())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_interrupted_while_spark_starts_ends_at_once(number: int) -> None:
    """By an exception, pyspark took away the file that its JVM was about to write, and the JVM stayed for ever."""
    said = (
        "import os, sys, time; from headrace_lake import __main__ as entry; from headrace_lake.commands import erase\n"
        "def start(*_):\n"
        f"    try: os.kill(os.getpid(), {int(number)}); time.sleep(60)\n"
        "    finally: print('unwound', flush=True)\n"
        "erase.running = start; sys.argv[1:] = ['erase', '--where', 'true']; sys.exit(entry.main())"
    )
    done = run("-c", said)
    assert (done.returncode, done.stdout) == (128 + number, ""), done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What a process of this Python ended with."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *arguments], env=given, capture_output=True, text=True, check=False)


HEAP = 1 << 30


@pytest.mark.parametrize(
    ("master", "settings", "allowed", "chosen"),
    [
        ("local[*]", {}, True, HEAP // 4),
        ("local[*]", {"dedup_memory": HEAP // 2}, True, HEAP // 2),
        ("local[*]", {"dedup_memory": HEAP // 2 + 1}, True, r"\(\d+\) is more than half .* raise LAKE__DRIVER_MEMORY"),
        ("local[*]", {"dedup": "arrays"}, True, ArraysIndex),
        ("local[*]", {}, False, ArraysIndex),
        ("local-cluster[2,1,1024]", {}, True, ArraysIndex),
        ("yarn", {"dedup_memory": HEAP}, True, ArraysIndex),  # it is not in the heap
        *((master, {"horizon": 0}, True, type(None)) for master in ("local[*]", "k8s://https://host")),
    ],
)
def test_the_way_fits_the_master(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, Any], allowed: bool, chosen: Any
) -> None:
    """`chosen`: the bytes of the map, the kind of another index, or why there is none."""
    in_jvm = Mock(side_effect=None if allowed else CompilerError("InaccessibleObjectException: no"))
    monkeypatch.setattr(choose, "MapIndex", in_jvm)
    runtime = SimpleNamespace(getRuntime=lambda: SimpleNamespace(maxMemory=lambda: HEAP))
    monkeypatch.setattr(choose, "java_class", lambda *_: runtime)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    log: Any = CapturingLogger()
    with pytest.raises(ConfigError, match=chosen) if isinstance(chosen, str) else nullcontext():
        index = open_index(spark, LakeSettings(**settings), "id", log)
        assert chosen == in_jvm.call_args.args[-1] if index is in_jvm.return_value else type(index) is chosen
