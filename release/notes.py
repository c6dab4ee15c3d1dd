#!/usr/bin/env python3
"""Prints what CHANGELOG.md says of a release. Fails unless the tag, the version of the code and the changelog agree.

python release/notes.py v1.2.3
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CODE: Final = ROOT / "libs" / "common" / "headrace_common" / "__init__.py"
"""Says the version of all parts."""


def version_of(code: str) -> str | None:
    """Returns the version that the text of `CODE` declares; None if there is none."""
    found = re.search(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    return found[1] if found else None


def notes(tag: str, changelog: str, code: str) -> str:
    """Returns the section of the release `tag`. Raises `SystemExit` if it is missing, or the code has another version."""
    version = version_of(code)
    if version is None or tag != f"v{version}":
        raise SystemExit(f"{tag}: the code's version is {version}.")
    section = re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n(.+?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section of {version} with a date.")
    return section[1].strip()


if __name__ == "__main__":
    print(notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text(), CODE.read_text()))
