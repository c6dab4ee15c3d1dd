#!/usr/bin/env python3
"""Builds the packages of all parts: an sdist and a wheel of each. Prints their names.

    .venv/bin/python release/packages.py dist

A wheel is made from its sdist, so that the sdist is known to be whole. The same commit gives the same wheels, byte for
byte. No network is needed: what builds is in the environment that runs this.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pins import ROOT, projects

SDIST: Final = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def version() -> str:
    """Returns the version of all parts."""
    code = (ROOT / "libs" / "common" / "headrace_common" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    assert found is not None
    return found[1]


def built_at() -> str:
    """Returns the time of the commit, in seconds: what files in an archive bear, so that it is the same each time."""
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "1700000000"


def prepare(part: Path, into: Path) -> None:
    """Copies what the sdist of `part` begins with: its parts of ours have the same version, and it has the licence."""
    shutil.copytree(part, into, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist"))
    for name in ("LICENSE", "README.md"):
        shutil.copy(ROOT / name, into)
    project = into / "pyproject.toml"
    project.write_text(re.sub(r'"(headrace(?:-\w+)?)"(?=,\n)', rf'"\1=={version()}"', project.read_text()))


def build(dist: Path) -> list[Path]:
    """Builds everything into `dist`, and returns the files. Raises `subprocess.CalledProcessError`; its output tells why."""
    dist.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": built_at(), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    made: list[Path] = []
    with tempfile.TemporaryDirectory() as folder:
        for part in (path.parent for path in projects()):
            copy = Path(folder, part.name)
            prepare(part, copy)
            subprocess.run(
                [sys.executable, "-c", SDIST, folder], cwd=copy, env=environment, check=True, stdout=subprocess.DEVNULL
            )
            (sdist,) = Path(folder).glob("*.tar.gz")
            subprocess.run([*wheel, "--wheel-dir", folder, str(sdist)], env=environment, check=True)
            (made_of_it,) = Path(folder).glob("*.whl")
            made += [Path(shutil.move(path, dist / path.name)) for path in (sdist, made_of_it)]
    return sorted(made)


if __name__ == "__main__":
    print(*(path.name for path in build(Path(sys.argv[1]).resolve())), sep="\n")
