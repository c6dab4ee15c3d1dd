#!/usr/bin/env python3
"""Builds the documentation's site into a folder, from the pages of the repository. Needs mkdocs: release/tools.sh installs it.

    python release/site.py FOLDER

Dead links, dead anchors and pages that docs/site.yml does not list fail. Only the search needs a server: open
FOLDER/index.html.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
CONFIGURATION: Final = ROOT / "docs" / "site.yml"
LINK: Final = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def listed() -> list[str]:
    """Returns the pages that the navigation names, in its order; a pattern names those that no other line does."""
    named = re.findall(r"^ +- (?:[\w ]+: )?\"?([\w/*.-]+\.md)\"?$", CONFIGURATION.read_text(), re.MULTILINE)
    plain = [name for name in named if "*" not in name]
    found: list[str] = []
    for name in named:
        found += [name] if "*" not in name else sorted(matching(name) - set(plain))
    return [name for name in found if (ROOT / name).is_file()]


def matching(pattern: str) -> set[str]:
    """Returns the pages of a pattern."""
    return {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)}


def stage(pages: Path) -> None:
    """Copies every page and what it links to, at their places in the repository, so that links stay what they are."""
    for name in {*listed(), *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))}:
        for source in (ROOT / name, *linked(ROOT / name)):
            target = pages / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    (pages / "llms.txt").write_text(summary())


def linked(page: Path) -> Iterator[Path]:
    """Yields the files of the repository that a page links to and that are no pages."""
    for target in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_file() and path.suffix != ".md" and path.is_relative_to(ROOT):
            yield path


def summary() -> str:
    """Returns llms.txt: what the project is, and each page with its first sentence."""
    lines = ["# Headrace", "", f"> {first_sentence(ROOT / 'README.md')}", "", "## Pages", ""]
    for name in listed():
        title = re.search(r"^# (.+)$", (ROOT / name).read_text(), re.MULTILINE)
        lines.append(f"- [{title[1] if title else name}]({name}): {first_sentence(ROOT / name)}")
    return "\n".join(lines) + "\n"


def first_sentence(page: Path) -> str:
    """Returns the first sentence of a page's first paragraph, without marks and links."""
    paragraph = re.search(r"^(?![#\s|!<`>-])(.+?)(?:\n\n|\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)|[*`]", r"\1", paragraph[1] if paragraph else "").replace("\n", " ")
    return re.split(r"(?<=[.:]) ", plain)[0].strip()


def navigation(text: str) -> str:
    """Returns the configuration with each pattern of pages replaced by the pages."""
    named = set(re.findall(r"([\w/.-]+\.md)$", text, re.MULTILINE))

    def pages(match: re.Match[str]) -> str:
        indent, title, pattern = match.groups()
        found = [f"- {name}" for name in sorted(matching(pattern) - named)]
        if not found:
            return f"{indent}# {pattern}: each has a line of its own"
        inner = f"{indent}- {title}\n{indent}    " if title else indent
        return inner + f"\n{indent}{'    ' if title else ''}".join(found)

    return re.sub(r"^( +)- (?:([\w ]+:) )?\"([\w/*.-]+\*\.md)\"$", pages, text, flags=re.MULTILINE)


def main() -> None:
    """Builds the site. Exits with the generator's status."""
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(folder / "pages")
        (folder / "site.yml").write_text(navigation(CONFIGURATION.read_text()))
        path = f"{os.environ['PATH']}{os.pathsep}{ROOT / '.tools' / 'bin'}"
        environment: dict[str, Any] = {**os.environ, "PATH": path, "NO_MKDOCS_2_WARNING": "1"}
        command = ["mkdocs", "build", "--strict", "-f", str(folder / "site.yml"), "-d", str(target)]
        try:
            done = subprocess.run(command, env=environment)
        except FileNotFoundError:
            sys.exit("site.py: there is no mkdocs: release/tools.sh installs it.")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
