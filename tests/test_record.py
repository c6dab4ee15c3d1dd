"""The recorded session of README: what a terminal's codes come to, and what the picture may not have in it."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.append(str(DOCS))

import record  # noqa: E402


def test_a_recorded_command_says_what_stood_on_the_terminal() -> None:
    text = "\x1b[?25l\x1b[?25h\n\x1b[32m✓\x1b[0m kafka ready\n  stack      waiting for lake (5 s)\none\rtwo  \n"
    text += "in /tmp/x/state/lake\n./headrace tap --state /tmp/x/state\n"
    assert record.said(text, "/tmp/x/state") == "\x1b[32m✓\x1b[0m kafka ready\ntwo\nin .headrace/lake\n./headrace tap"


def test_a_picture_does_not_name_this_machine() -> None:
    with pytest.raises(ValueError, match="would have"):
        record.drawn([("up", f"on {socket.gethostname()}")])


def test_the_picture_of_the_repository_is_such_a_one() -> None:
    picture = record.PICTURE.read_text()
    assert re.findall(r"https?://(?!127\.0\.0\.1)[^\"'\s<]+", picture) == ["http://www.w3.org/2000/svg"]
    assert "font-face" not in picture
    text = re.sub(r"<[^>]+>|&#160;", " ", picture)
    for command in record.COMMANDS:
        assert command.split()[0] in text
    assert not re.search(r"/(tmp|home|root)/", picture)
