"""Paths: the checkout that this package runs from, and the user's cache."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from headrace_cli.errors import CommandError

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout. The command line always runs from one, through ``./headrace`` or an editable installation."""

DEFAULT_STATE: Final = ROOT / ".headrace"
"""The default state folder. It lies in the checkout, whatever the current folder is."""


def command(verb: str, state: Path) -> str:
    """How to call a verb for a state folder, to be pasted."""
    option = "" if state == DEFAULT_STATE else f" --state {shlex.quote(str(state))}"
    return f"./headrace {verb}{option}"


def checkout_file(name: str) -> Path:
    """Return the path of a file in the checkout's root. Raises `CommandError` if the package was installed without it."""
    path = ROOT / name
    if not path.is_file():
        raise CommandError(f"{path} is missing: the command line needs a checkout of the repository (pip install -e).")
    return path


def cache() -> Path:
    """Return the folder for downloads, one for each user; make it if it is missing. Raises `CommandError`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "headrace"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"The cache folder {folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME to a folder that you may write."
        ) from error
    return folder
