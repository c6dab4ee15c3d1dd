"""The images of this checkout, built once for all tests that run them: those of containers and those of the chart."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from headrace_cli.ground import ROOT
from headrace_cli.machine.filelock import locked
from headrace_cli.machine.images import all_images

TAG = "test"
"""Images of this tag are the tests' own, so that they never replace a user's."""

NAMES = tuple(image.name for image in all_images())


def reference(name: str) -> str:
    """The full name of an image that `built` has built."""
    (image,) = (image for image in all_images() if image.name == name)
    return image.reference(TAG)


@lru_cache
def built(*names: str) -> None:
    """Builds images as users do, all of them without `names`. What has not changed costs a second; a first time, minutes.

    Workers that share the tests wait for each other: two builds at once would do the same work twice.
    """
    with locked(Path(tempfile.gettempdir()) / "headrace-images.lock", lambda: None):
        command: Sequence[str] = [sys.executable, "-P", "-m", "headrace_cli", "images", "--tag", TAG, *names]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
