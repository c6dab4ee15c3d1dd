#!/usr/bin/env python3
"""Writes Cargo.lock beside Cargo.toml, for `cargo build --locked`: every crate at one version, with its SHA-256.

    python lock.py              from crates.lock
    python lock.py --upgrade    from the newest versions, which become those of crates.lock

crates.lock is a Cargo.lock that does not say where the crates come from: cargo is asked for that, and the version of the core
itself is that of Cargo.toml.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PINS: Final = HERE / "crates.lock"
LOCK: Final = HERE / "Cargo.lock"
SOURCE: Final = re.compile(r"^source = .*\n", re.MULTILINE)
OURS: Final = re.compile(r'^name = "headrace_native"\nversion = .*$', re.MULTILINE)


def main() -> None:
    """Does what the arguments ask for. Raises `subprocess.CalledProcessError` if cargo fails: its output says why."""
    subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=HERE, check=True)
    newest = LOCK.read_text()
    if sys.argv[1:] == ["--upgrade"]:
        PINS.write_text(SOURCE.sub("", newest))
        return
    source, ours = SOURCE.search(newest), OURS.search(newest)
    assert source is not None, newest
    assert ours is not None, newest
    pins = OURS.sub(ours[0], PINS.read_text())
    LOCK.write_text(re.sub(r"^(?=checksum = )", source[0], pins, flags=re.MULTILINE))


if __name__ == "__main__":
    main()
