"""Docstrings say what something does in a verb, an object and a condition, not in riddles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cli", "libs", "services/courier", "services/forward", "services/lumberjack", "services/segment")
RIDDLE = re.compile(r"^(What|Who|Whoever|Nobody)\b|\b(whoever|so many|so much)\b|\bso long\b(?! as)", re.IGNORECASE)


def docstrings(source: str) -> list[str]:
    """Returns every text that is an expression of its own: docstrings, also those of constants and fields."""
    nodes = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_need_no_decoding(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text[:80]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in docstrings(path.read_text())
        if RIDDLE.search(text)
    ]
    assert found == []


def test_the_rule_can_fail() -> None:
    riddles = docstrings(
        '"""What it is."""\nA = 1\n"""One for each so many bytes."""\ndef f():\n    """Whoever calls."""'
    )
    assert [bool(RIDDLE.search(text)) for text in riddles] == [True] * 3
