"""Places of tables: which folders readers can take, and which lie in each other. The command line reads this without PySpark."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_UNREADABLE: Final = re.compile(r"[][\\^|*?`\x00-\x1f\x7f\ud800-\udfff]|%[0-9A-Fa-f]{2}")
"""Parts that a path may not have: deltalake looks elsewhere, or panics; DuckDB takes it for a pattern; Spark's SQL ends at it;
bytes that are no UTF-8, which Python reads as surrogates, no reader takes.
"""


def unreadable(folder: str) -> str | None:
    """Returns a part of the path of `folder` that a reader of its tables cannot take; or None."""
    found = _UNREADABLE.search(folder)
    return found and (found.group() if found.group().isprintable() else repr(found.group()))


def local_folder(place: str) -> Path | None:
    """Returns the local folder of a `settings.location`, without links; None if it is elsewhere."""
    local = re.sub("^file:(//)?", "", place)
    return None if local == place and urlsplit(place).scheme else Path(local).resolve()


def within(place: str, other: str) -> bool:
    """Returns whether the location `place` is `other`, or inside it, however they are written."""
    folder, around = local_folder(place), local_folder(other)
    if folder is not None and around is not None:
        return folder.is_relative_to(around)
    return f"{posixpath.normpath(place)}/".startswith(f"{posixpath.normpath(other)}/")
