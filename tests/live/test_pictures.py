"""The pictures of the live page say what its code says. `docs/pictures.py` takes them, and writes what they say."""

import re
from pathlib import Path

import pytest
from headrace_common.protocol import installed

ROOT = Path(__file__).parents[2]
PAGE = [path for path in (ROOT / "live" / "headrace_live").rglob("*") if path.suffix in (".py", ".js", ".html")]
VALUE = re.compile(r"headrace\.\w+|(\d+\.)+\d+:\d+|[\d.,]+( ?([smhdkMGTB]|ms|[KMGT]iB)\b)?|p\d\b| ")
"""What no code says: a topic, an address, a figure with its unit, a partition."""
NAMES = {protocol.name for protocol in installed()}


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "pictures").glob("*.webp")), ids=lambda path: path.stem)
def test_a_picture_says_what_the_code_says(path: Path) -> None:
    pieces = {text.strip() for source in PAGE for text in re.split(r"[`\"'<>{}$]", source.read_text())}
    pieces = {text for text in pieces | NAMES | set("·–,.;:s") if len(text) > 1 or text in "·–,.;:s"} - {""}
    shown = path.with_suffix(".txt").read_text().splitlines()
    assert set(shown) >= NAMES, "a receiver is missing: python docs/pictures.py"
    for line in shown:
        reached = {0}
        for at in range(len(line)):
            if at in reached:
                value = VALUE.match(line, at)
                reached |= {value.end()} if value else set()
                reached |= {at + len(piece) for piece in pieces if line.startswith(piece, at)}
        assert len(line) in reached, f"the code does not say {line[max(reached) :]!r}: python docs/pictures.py"
