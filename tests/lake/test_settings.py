"""Settings of the landing job: contradictions end with status 78 and one line, before Spark starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_common.operations.settings import LogSettings, load
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.spark import engine
from headrace_lake.spark.engine import ZSTD_LEVEL, session_options


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
        ({"LAKE__SPARK": '{"spark.hadoop.fs.s3a.path.style.access": true, "spark.executor.instances": 2}'}, ""),
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


def test_the_process_exits_with_78_and_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace_lake", "--once"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_LAKE__TRIGGER": "often"},
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == EXIT_CONFIG
    assert done.stderr.startswith("headrace_lake: HEADRACE_LAKE__TRIGGER: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("source", ["LAKE__SPARK", "spark-submit"])
def test_what_the_rows_depend_on_cannot_be_set_otherwise(source: str) -> None:
    options = {"spark.sql.session.timeZone": "Europe/Vienna"}
    given, wanted = (options, {}) if source == "spark-submit" else ({}, options)
    with pytest.raises(
        ConfigError, match=f"{source} sets spark.sql.session.timeZone to Europe/Vienna: the job needs UTC"
    ):
        session_options(given, wanted)


def test_what_only_costs_may_be_set_by_either() -> None:
    ours = session_options({}, {})
    assert ours["spark.ui.enabled"] == "false"
    assert "spark.ui.enabled" not in session_options({"spark.ui.enabled": "true"}, {})  # as the context has it
    assert session_options({}, {"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"
    for given, master in (
        ({}, "spark://host:7077"),
        ({"spark.master": "k8s://host"}, ""),
        ({"spark.master": "yarn"}, ""),
    ):
        assert "spark.ui.enabled" not in session_options(given, {}, master), "on a cluster, Spark's pages are served"
    assert session_options({"spark.master": "local[2]"}, {})["spark.ui.enabled"] == "false"
    level = f"spark.hadoop.{ZSTD_LEVEL}"
    assert level not in session_options({level: "9"}, {})
    assert session_options({}, {level: "9"})[level] == "9"
    name = "spark.executor.extraJavaOptions"
    assert session_options({name: "-Da=1"}, {name: "-Db=2"})[name] == f"{ours[name]} -Da=1 -Db=2"


def test_jars_that_come_too_late_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as spark-submit sets it
    with pytest.raises(ConfigError, match="LAKE__JARS comes too late under spark-submit: name the jars there"):
        engine.session(LakeSettings(jars=tmp_path), LogSettings())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_while_spark_starts_ends_at_once(number: int) -> None:
    """By an exception, pyspark took away the file that its JVM was about to write, and the JVM stayed for ever."""
    said = (
        "import os, sys, time; from headrace_lake import __main__ as entry; from headrace_lake.commands import erase_command\n"
        "def start(*_):\n"
        f"    try: os.kill(os.getpid(), {int(number)}); time.sleep(60)\n"
        "    finally: print('unwound', flush=True)\n"
        "erase_command.running = start; sys.argv[1:] = ['erase', '--where', 'true']; sys.exit(entry.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", said],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (128 + number, b""), done.stderr
