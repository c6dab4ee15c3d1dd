#!/usr/bin/env python3
"""Writes docs/licences.md: the packages of others in the environment and in the images, each with its licence.

.venv/bin/python release/licences.py     after release/pins.py, in an environment that has what is pinned
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Final

from pins import PINS, name_of, requirements, users_of

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "licences.md"
SHIPPED: Final = {
    "cli",
    "common",
    "courier",
    "forward",
    "lake",
    "live",
    "logjam",
    "lumberjack",
    "msk",
    "reader",
    "segment",
}
HEAD: Final = """\
# Licences of what is shipped

Headrace has the Apache License 2.0. An image or an environment also has these packages, each pinned in `constraints.txt`. What is
said of a licence is what the package says of itself. Written by `release/licences.py`.

The jars of `cli/headrace_cli/machine/jars.txt` (Kafka, Spark's connectors, Delta, Hadoop's S3A, AWS's SDK and what they need) are
fetched, not shipped, but for the landing job's image; each has its licence in `META-INF`. The native core of the
receivers' images has crates of `libs/native/crates.lock`; its bill of materials (`headrace_native-*.dist-info/sboms`) has the
licence of each. What comes with an image's base, Python and Debian's Java, has it in `/usr/share/doc`. `syft scan docker:IMAGE`
lists all of an image.

| package | licence | in |
|---|---|---|
"""


def licence(name: str) -> str:
    """Returns what a package says of its licence: the expression, else its classifiers, else the first line of its text."""
    said = importlib.metadata.metadata(name)

    def of(field: str) -> list[str]:
        return [text for text in said.get_all(field) or [] if text]

    classified = [line.rpartition(" :: ")[2] for line in of("Classifier") if line.startswith("License ::")]
    text = " or ".join(of("License-Expression") or classified or of("License") or ["see its files"])
    return re.sub(r"[|\n].*", "", text.strip(), flags=re.DOTALL)[:60]


def page() -> str:
    """Returns the page. Raises `PackageNotFoundError` if what is pinned is not installed."""
    rows = []
    for each in requirements(PINS.read_text()):
        users = sorted(users_of(each) & SHIPPED)
        if users and "win32" not in each.partition("\n")[0]:
            rows.append(f"| {name_of(each)} | {licence(name_of(each))} | {', '.join(users)} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
