"""What all protocols share names none of them: a new one is a package and no line elsewhere.

What still names one is listed here, and the list only shrinks.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace_common.protocol import installed

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = {"forward", "segment"}
"""Names that are words, too. As names they are capitals, or quoted, or part of another."""

SHARED = {
    "operations/settings.py",  # settings of sections that one environment has for all parts
    "record/contract.py",  # what is in the lake's tables
    "record/windows_1252.py",  # whose importer a fact comes from
}
"""The files of the library that name one."""

COMMAND_LINE = 17
"""How many files of the command line still do, at most."""


def naming() -> re.Pattern[str]:
    """What names a protocol."""
    found = []
    for name in (protocol.name for protocol in installed()):
        found += [rf'"{name}"', rf"headrace_{name}\b", rf"\b{name.upper()}__", rf"\b{name}s_"]
        found += [] if name in ORDINARY else [rf"(?i:{name})"]
    return re.compile("|".join(found))


def named(folder: str) -> set[str]:
    pattern, root = naming(), ROOT / folder
    return {str(path.relative_to(root)) for path in root.rglob("*.py") if pattern.search(path.read_text())}


def test_what_names_a_protocol_is_found() -> None:
    for text in ('"forward"', "headrace_segment.store", "SEGMENT__WRITERS", "segments_topic", "Courier's PONG"):
        assert naming().search(text), text
    for text in ("to forward it", "a path segment", "HEADRACE_LAKE__PATH", "straightforward"):
        assert not naming().search(text), text


def test_the_library_names_no_protocol() -> None:
    assert named("libs/common/headrace_common") == SHARED


def test_the_command_line_names_ever_fewer() -> None:
    assert len(named("cli/headrace_cli")) <= COMMAND_LINE
