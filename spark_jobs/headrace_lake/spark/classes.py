"""Spark's classes, parsed once for all JVMs that start later: Java's class-data sharing.

`keep` writes the archive at the end of a run with `--once`. Its name says with which Java and jars it was made, and how long it
is: Java checks the former again and what is in the archive, but dies of one that is shorter than it says. A JVM that cannot use
an archive starts without.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace_lake.spark.jvm import call_method, java_array, java_class

_CHECKED: Final = "-Xshare:auto -XX:+VerifySharedSpaces -Xlog:cds=off -Xlog:cds+dynamic=off"
_RECORD: Final = "-XX:+RecordDynamicDumpInfo"
_TEXTS: Final = "[Ljava.lang.String;"
_ROOM: Final = 1 << 30
"""Bytes that must be free: a JVM that cannot write an archive to its end, ends."""
_NAME: Final = re.compile(r"[0-9a-f]{16}\.\d+(\.jsa)?")
_KEPT: Final = 2
"""How many archives stay, of 170 MB each: those of jars and Javas that were replaced are of no use."""


def options(folder: Path, jars: Path | None) -> str:
    """Returns Java's options to take classes from the archive in `folder`; without one, those that `keep` needs."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    found = _found(folder, _mark(jars))
    used = [path for path in (*_base(folder), *found) if path.stat().st_size]
    archive = shlex.quote(f"-XX:SharedArchiveFile={os.pathsep.join(map(str, used))}")
    shared = f"{_CHECKED} {archive}" if used else _CHECKED
    return shared if found else f"{shared} {_RECORD}"


def keep(spark: SparkSession, folder: Path, jars: Path | None) -> None:
    """Writes the archive of the classes that this JVM has loaded, if it is missing, and deletes all but the newest `_KEPT`.

    Blocks for some seconds; never fails.
    """
    mark = _mark(jars)
    draft = folder / f"{mark}.{os.getpid()}"
    with suppress(OSError):
        if _found(folder, mark) or shutil.disk_usage(folder).free < _ROOM:
            return
        try:
            _dump(spark, draft)
        except Py4JError:  # a Java that cannot
            draft.unlink(missing_ok=True)
        draft.touch()  # an empty one, so that no later run tries again
        _name(draft, mark)
        ours = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        for path in sorted(ours, key=lambda path: path.stat().st_mtime_ns)[:-_KEPT]:
            path.unlink()


def _dump(spark: SparkSession, path: Path) -> None:
    """Dumps as `jcmd VM.cds dynamic_dump` does, which a Java need not have."""
    beans = java_class(spark, "java.lang.management.ManagementFactory").getPlatformMBeanServer()
    name = java_class(spark, "javax.management.ObjectName")("com.sun.management:type=DiagnosticCommand")
    words = java_array(spark, "java.lang.String", ["dynamic_dump", str(path)])
    signature = java_array(spark, "java.lang.String", [_TEXTS])
    arguments = [name, "vmCds", java_array(spark, "java.lang.Object", [words]), signature]
    kinds = ["javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", _TEXTS]
    call_method(spark, "javax.management.MBeanServer", "invoke", kinds, arguments, on=beans)


def _found(folder: Path, mark: str) -> list[Path]:
    """Returns the archive named `mark`, if it is as long as its name says."""
    named = folder.glob(f"{mark}.*.jsa")
    return [path for path in named if path.name.split(".")[1] == str(path.stat().st_size)][:1]


def _name(draft: Path, mark: str) -> None:
    draft.rename(draft.with_name(f"{mark}.{draft.stat().st_size}.jsa"))


def _mark(jars: Path | None) -> str:
    """Returns a hash that is another for another Java, or other jars."""
    folders = [Path(pyspark.__file__).parent / "jars", *([] if jars is None else [jars.absolute()])]
    files = [(path, path.stat()) for folder in folders for path in sorted(folder.glob("*.jar"))]
    release = _java() / "release"
    means = [_java(), release.read_text() if release.exists() else ""]
    means += [f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in files]
    return hashlib.sha256("\n".join(map(str, means)).encode()).hexdigest()[:16]


def _base(folder: Path) -> list[Path]:
    """Returns an archive of Java's own classes, made once in half a second for a Java without one; none if Java has one."""
    if (_java() / "lib" / "server" / "classes.jsa").exists():
        return []
    mark = f"java-{hashlib.sha256(str(_java()).encode()).hexdigest()[:16]}"
    if not _found(folder, mark) and os.access(folder, os.W_OK):
        draft = folder / f"{mark}.{os.getpid()}"
        dump = [str(_java() / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
        with suppress(OSError):
            subprocess.run(dump, capture_output=True, check=False)
            _name(draft, mark)
    return _found(folder, mark)


def _java() -> Path:
    """Returns the Java that PySpark starts."""
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else Path(shutil.which("java") or "java").resolve().parent.parent
