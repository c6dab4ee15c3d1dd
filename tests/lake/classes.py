"""The classes of Spark, parsed once for all JVMs of the tests (class-data sharing): halves what a start costs.

Whoever runs a job in the test's own process first writes the archive into the virtual environment; what is started later takes
its classes from there. A JVM that cannot (another Java, no archive of its own to build on) starts as ever.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, cast

import pyspark
from headrace_cli.toolchain import jars, java_home
from headrace_lake.jvm import java_class
from pyspark.sql import SparkSession

_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def _archive() -> Path:
    """Where the archive lies: another one for another Java or class path."""
    means = [str(java_home()), str(jars("spark")), str(pyspark.__file__)]
    mark = hashlib.sha256("\n".join(means).encode()).hexdigest()[:16]
    folder = Path(sys.prefix) / "headrace-classes"
    folder.mkdir(exist_ok=True)
    return folder / f"{mark}.jsa"


def _base() -> str:
    """An archive of Java's own classes, for the Java that comes without one; empty when it has one. Half a second, once."""
    if (java_home() / "lib" / "server" / "classes.jsa").exists():
        return ""
    base = _archive().with_suffix(".base")
    if not base.exists():
        draft = base.with_suffix(f".{os.getpid()}")
        dump = [java_home() / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
        subprocess.run(dump, capture_output=True, timeout=120)
        if not draft.exists():
            return ""
        draft.rename(base)
    return str(base)


def taken() -> str:
    """Java's options for taking classes from the archive; empty while there is none."""
    archive = _archive()
    there = archive.exists() and archive.stat().st_size
    return f"{_QUIET} -XX:SharedArchiveFile={':'.join(filter(None, [_base(), str(archive)]))}" if there else ""


def given() -> str:
    """Java's options for a JVM that may be asked to `keep` its classes."""
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
        subprocess.run(command, capture_output=True, timeout=120)
    draft.touch()  # this Java cannot: nobody tries again, and nobody takes an empty archive
    draft.rename(archive)
