"""Docstrings say what something does in a verb, an object and a condition, not in riddles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("benchmarks", "cli", "docs", "libs", "release", "services", "spark_jobs")
RIDDLE = re.compile(r"^(What|Who|Whoever|Nobody)\b|\b(whoever|so many|so much)\b|\bso long\b(?! as)", re.IGNORECASE)


OLD = re.compile(r"\b(anew|so many|lets? go (of )?(what|all|the|whole))\b", re.IGNORECASE)
"""Words for which there is a plain one, anywhere in code and on pages."""


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


@pytest.mark.parametrize("place", [*PACKAGES, "deploy"])
def test_code_and_pages_use_plain_words(place: str) -> None:
    files = [
        each for each in sorted((ROOT / place).rglob("*")) if each.suffix in {".py", ".md", ".yaml", ".json", ".rs"}
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OLD.search(line)
    ]
    assert files
    assert found == []


def test_the_rule_can_fail() -> None:
    riddles = docstrings(
        '"""What it is."""\nA = 1\n"""One for each so many bytes."""\ndef f():\n    """Whoever calls."""'
    )
    assert [bool(RIDDLE.search(text)) for text in riddles] == [True] * 3
    texts = ("It begins anew.", "of so many bytes", "It is renewed.")
    assert [bool(OLD.search(text)) for text in texts] == [True, True, False]
