"""Spark's classes, parsed once for all JVMs of the tests (class-data sharing): this halves the cost of a start.

The first test that runs a job in its own process writes the archive into the virtual environment. JVMs that start later take
their classes from it. A JVM that cannot (another Java, no base archive) starts as usual.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, cast

import pyspark
from headrace_cli.machine.toolchain import jars, java_home
from headrace_lake.spark.jvm import java_class
from pyspark.sql import SparkSession

_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def _archive() -> Path:
    """The path of the archive; different for another Java or class path."""
    means = [str(java_home()), str(jars("spark")), str(pyspark.__file__)]
    mark = hashlib.sha256("\n".join(means).encode()).hexdigest()[:16]
    folder = Path(sys.prefix) / "headrace-classes"
    folder.mkdir(exist_ok=True)
    return folder / f"{mark}.jsa"


def _base() -> str:
    """An archive of Java's own classes, made once in half a second for a Java without one; empty if Java has one."""
    if (java_home() / "lib" / "server" / "classes.jsa").exists():
        return ""
    base = _archive().with_suffix(".base")
    if not base.exists():
        draft = base.with_suffix(f".{os.getpid()}")
        dump = [java_home() / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
        subprocess.run(dump, capture_output=True, timeout=900)
        if not draft.exists():
            return ""
        draft.rename(base)
    return str(base)


def taken() -> str:
    """Java's options to take classes from the archive; empty while there is none."""
    archive = _archive()
    there = archive.exists() and archive.stat().st_size
    return f"{_QUIET} -XX:SharedArchiveFile={':'.join(filter(None, [_base(), str(archive)]))}" if there else ""


def given() -> str:
    """Java's options for a JVM whose classes `keep` may write."""
    base = _base()
    return taken() or " ".join(
        [_QUIET, "-XX:+RecordDynamicDumpInfo", *([f"-XX:SharedArchiveFile={base}"] if base else [])]
    )


def keep(spark: SparkSession) -> None:
    """Writes the archive of what this JVM has loaded, if there is none yet. Blocks for some seconds."""
    archive = _archive()
    if archive.exists():
        return
    draft = archive.with_suffix(f".{os.getpid()}")
    tool = Path(java_class(spark, "java.lang.System").getProperty("java.home")) / "bin" / "jcmd"
    gateway: Any = cast("Any", spark.sparkContext)._gateway
    if tool.exists():
        command = [tool, str(gateway.proc.pid), "VM.cds", "dynamic_dump", str(draft)]
        subprocess.run(command, capture_output=True, timeout=900)
    draft.touch()  # if this Java cannot: an empty archive, so that nobody tries again, and nobody uses it
    draft.rename(archive)
