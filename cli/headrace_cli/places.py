"""Where things are: the repository that this package runs from, and the user's cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from headrace_cli.errors import CommandError

ROOT: Final = Path(__file__).resolve().parents[2]
"""The repository. The command line runs from a checkout (through ``./headrace`` or an editable installation)."""

DEFAULT_STATE: Final = ROOT / ".headrace"
"""The state folder unless one is named: the repository's, wherever one stands."""


def committed(name: str) -> Path:
    """A file at the repository's root. Raises `CommandError` when this package was installed without it."""
    path = ROOT / name
    if not path.is_file():
        raise CommandError(f"{path} is missing: the command line needs a checkout of the repository (pip install -e).")
    return path


def cache() -> Path:
    """The folder for what is fetched once per user; created if it is not there."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "headrace"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"The cache folder {folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME to a folder of yours."
        ) from error
    return folder
