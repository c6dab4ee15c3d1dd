"""The images of this checkout, built once for all tests that run them: those of containers and those of the chart."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from headrace_cli.ground import ROOT
from headrace_cli.stack.stack import SERVICES

TAG = "test"
"""Images of this tag are the tests' own, so that they never replace a user's."""

NAMES = (*(service.name for service in SERVICES), "tools", "lake")


def reference(name: str) -> str:
    """The full name of an image that `built` has built."""
    return f"headrace-{name}:{TAG}"


@lru_cache
def built(*names: str) -> None:
    """Builds images as users do, all of them without `names`. What has not changed costs a second; a first time, minutes.

    Workers that share the tests wait for each other: two builds at once would do the same work twice.
    """
    services = ["live" if name == "tools" else name for name in names]  # the page's is the image of the tools
    with (Path(tempfile.gettempdir()) / "headrace-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["docker", "compose", "build", *services],
            cwd=ROOT,
            env={**os.environ, "HEADRACE_TAG": TAG},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1500,
        )
    assert done.returncode == 0, done.stdout + done.stderr
