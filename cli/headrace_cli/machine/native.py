"""The native core, built in a checkout where cargo and a linker are. Nothing needs it: receivers do the same in Python.

python -m headrace_cli.machine.native    # the status is 1 if it cannot be built; cargo has said why
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from headrace_cli.ground import ROOT

SOURCES: Final = ROOT / "libs" / "native"
MODULE: Final = "headrace_native.abi3.so"


def install() -> None:
    """Build the core, and put it into this Python's environment. Raises `OSError`, `subprocess.SubprocessError`."""
    flags = " -C link-arg=-undefined -C link-arg=dynamic_lookup" if sys.platform == "darwin" else ""
    variables = {"PYO3_PYTHON": sys.executable, "RUSTFLAGS": os.environ.get("RUSTFLAGS", "") + flags}
    for command in ([sys.executable, "lock.py"], ["cargo", "build", "--locked", "--release", "--quiet"]):
        subprocess.run(command, cwd=SOURCES, env={**os.environ, **variables}, check=True)
    suffix = "dylib" if sys.platform == "darwin" else "so"
    module = Path(sysconfig.get_path("platlib")) / MODULE
    fresh = module.with_suffix(".new")  # processes may be using the one before
    shutil.copyfile(SOURCES / "target" / "release" / f"libheadrace_native.{suffix}", fresh)
    fresh.replace(module)


if __name__ == "__main__":
    try:
        install()
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"native core: not built: {error}")
