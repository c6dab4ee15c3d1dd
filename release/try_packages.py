#!/usr/bin/env python3
"""Installs the packages of a folder into an empty environment, and runs the demo from there, with no checkout in reach.

    python release/try_packages.py dist                      packages of others come from the index, as constraints.txt has them
    python release/try_packages.py dist --others FOLDER      they are in this site-packages already: no network is needed

Exit status 0 if every step has succeeded. The demo fetches Kafka's and Spark's jars, unless the user's cache has them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def install(environment: Path, dist: Path, others: Path | None) -> Path:
    """Makes the environment, installs the wheels of `dist`, and returns its command `headrace`."""
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if others is None:
        asked = [sys.executable, str(ROOT / "release" / "pins.py"), "--of", "cli"]
        pins = environment / "pins.txt"
        pins.write_bytes(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout)
        subprocess.run([*pip, "--require-hashes", "-r", str(pins)], check=True)
    else:
        (site,) = environment.glob("lib/python3*/site-packages")
        # its packages, and none of its own .pth files, which name a checkout
        (site / "others.pth").write_text(f"{others}\n")
    subprocess.run([*pip, "--no-index", *map(str, sorted(dist.glob("*.whl")))], check=True)
    subprocess.run([str(python), "-m", "pip", "check"], check=True)
    return environment / "bin" / "headrace"


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Runs one command where nothing is, and says so. Raises `subprocess.CalledProcessError` if it fails."""
    print("$", "headrace", *command[1:], flush=True)
    subprocess.run(command, cwd=folder, env=environment, check=True)


def main() -> None:
    """Does what the arguments ask for."""
    parser = argparse.ArgumentParser(description="Tries the packages in an empty environment.")
    parser.add_argument("dist", type=Path, help="the folder of the wheels")
    parser.add_argument("--others", type=Path, help="a site-packages that has what is of others")
    parser.add_argument("--events", type=int, default=1000, help="how many events the demo sends")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-packages-") as name:
        folder = Path(name)
        headrace = str(install(folder / "environment", given.dist.resolve(), given.others and given.others.resolve()))
        (empty := folder / "empty").mkdir()
        ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "HEADRACE_VENV", "HEADRACE_STATE"}
        variables = {name: value for name, value in os.environ.items() if name not in ours}
        for words in (["--version"], ["--help"], ["query", "--help"], ["demo", "--events", str(given.events)]):
            run([headrace, *words], empty, variables)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed with status {error.returncode}: {' '.join(map(str, error.cmd))}")
