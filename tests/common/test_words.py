"""Docstrings say what something does in a verb, an object and a condition, not in riddles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("benchmarks", "cli", "docs", "libs", "live", "release", "services", "spark_jobs")
CODE = ("cli", "libs", "live", "services", "spark_jobs")
VERB = re.compile(r"(?!(?:Always|As|Bytes|Its|Rows|Seconds|This)\b)[A-Z][a-z-]+s\b|See ")
COMMAND = re.compile(
    r"(Add|Answer|Ask|Begin|Build|Check|Choose|Close|Compare|Connect|Convert|Copy|Count|Create|Delete|Do|Draw|End|Fetch|Fill"
    r"|Give|Go|Hash|Hold|Keep|Let|List|Listen|Lock|Look|Make|Name|Note|Number|Open|Print|Prove|Put|Query|Raise|Read|Replace"
    r"|Report|Return|Run|Say|See|Send|Serve|Show|Stall|Start|Stop|Take|Try|Wait|Write|Yield)\b"
)
"""How a function's docstring begins: `Returns`, and `Return` in the command line, whose verbs are their users' words."""
PROBES = ROOT / "cli/headrace_cli/wire/conform/probes.py"
"""Their docstrings say what is sent."""

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


def beginnings(source: str) -> list[str]:
    """Returns the docstrings of functions, but not of properties and special methods, which are nouns as fields are."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = [
        n
        for n in functions
        if not n.name.startswith("__") and not any("property" in ast.unparse(d) for d in n.decorator_list)
    ]
    return [text for node in named if (text := ast.get_docstring(node))]


@pytest.mark.parametrize("package", CODE)
def test_a_functions_docstring_begins_with_a_verb(package: str) -> None:
    verb = COMMAND if package in ("cli", "live") else VERB
    found = [
        f"{path.relative_to(ROOT)}: {text[:80]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != PROBES
        for text in beginnings(path.read_text())
        if not verb.match(text)
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
