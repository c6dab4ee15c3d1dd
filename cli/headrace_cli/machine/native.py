"""The native core, built where cargo and a linker are: once for each version of its sources and each user.

Nothing needs it: receivers do the same in Python. So whatever goes wrong is one line, and no error.

    python -m headrace_cli.machine.native    # prints that line; the status is 1 if it is not there
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final, NamedTuple

from headrace_cli.ground import ROOT, CommandError, cache

SOURCES: Final = ROOT / "libs" / "native"
MODULE: Final = "headrace_native.abi3.so"
LONGEST: Final = 900.0
"""Seconds that a build may take."""


class NativeStatus(NamedTuple):
    """Whether the native core is installed in this environment, and one line about it."""

    there: bool
    line: str


def install() -> NativeStatus:
    """Build the core unless that was done before, and install it in this Python's environment. Never raises."""
    if not (SOURCES / "Cargo.toml").is_file():
        return NativeStatus(False, "not built: this is no checkout")
    if shutil.which("cargo") is None:
        return NativeStatus(False, "not built: cargo is missing; receivers run without it, at a higher cost")
    try:
        kept = cache() / "native" / fingerprint() / MODULE
        kept.parent.mkdir(parents=True, exist_ok=True)
        with (kept.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh = not kept.is_file()
            problem = _build(kept) if fresh else ""
        if problem:
            return NativeStatus(False, f"not built: {problem}; receivers run without it, at a higher cost")
        _copy(kept, Path(sysconfig.get_path("platlib")) / MODULE)
    except (OSError, CommandError, subprocess.SubprocessError) as error:
        return NativeStatus(False, f"not built: {error}; receivers run without it, at a higher cost")
    return NativeStatus(True, "built with cargo" if fresh else "built before")


def fingerprint() -> str:
    """Return a hash that changes with everything on which the build depends."""
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {platform.libc_ver()}".encode())
    for path in sorted([SOURCES / "Cargo.toml", SOURCES / "crates.lock", *SOURCES.glob("src/**/*.rs")]):
        digest.update(f"\n{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _build(result: Path) -> str:
    """Build the core to `result`. Return why it could not, in a few words."""
    flags = " -C link-arg=-undefined -C link-arg=dynamic_lookup" if sys.platform == "darwin" else ""
    folder = result.parent / "build"
    try:
        sources = shutil.copytree(
            SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target", "Cargo.lock")
        )
        for command in (
            [sys.executable, "lock.py"],
            ["cargo", "build", "--locked", "--release", "--quiet", "--target-dir", "target"],
        ):
            done = subprocess.run(
                command,
                cwd=sources,
                env={**os.environ, "PYO3_PYTHON": sys.executable, "RUSTFLAGS": os.environ.get("RUSTFLAGS", "") + flags},
                capture_output=True,
                timeout=LONGEST,
            )
            if done.returncode != 0:
                (result.parent / "build.log").write_bytes(done.stderr)
                return f"cargo failed ({result.parent / 'build.log'} says why)"
        suffix = "dylib" if sys.platform == "darwin" else "so"
        _copy(folder / "target" / "release" / f"libheadrace_native.{suffix}", result)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def _copy(source: Path, to: Path) -> None:
    """Put a file into its place as a whole, if it is not there: processes may be using the one before."""
    if to.is_file() and to.read_bytes() == source.read_bytes():
        return
    fresh = to.with_name(f".{to.name}.{os.getpid()}")
    shutil.copyfile(source, fresh)
    fresh.replace(to)


if __name__ == "__main__":
    built = install()
    print(f"native core: {built.line}")
    sys.exit(0 if built.there else 1)
