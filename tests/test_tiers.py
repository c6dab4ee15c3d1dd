"""What tests/README.md promises of the tiers and of the contract suite is so."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import needs
from tests.contract.dialect import Can
from tests.tiers import EXAMPLES, Tier, examples, runs

TESTS = Path(__file__).parent
README = (TESTS / "README.md").read_text()
ROW = re.compile(r"^\| (?P<fault>.+?) \| (?P<tier>quick|all|full) \| (?P<tests>`.+`) \|$", re.MULTILINE)
CONTRACT = sorted(path.stem for path in (TESTS / "contract").glob("test_*.py"))


def required() -> dict[str, Tier]:
    """The tests that the page names, each with its tier."""
    return {test: Tier(row["tier"]) for row in ROW.finditer(README) for test in re.findall("`(.+?)`", row["tests"])}


def defined(test: str) -> bool:
    """Whether ``folder/module.py::name`` is there, name a function or a class."""
    file, _, name = test.partition("::")
    return name in names_in(TESTS / file)


@lru_cache
def names_in(path: Path) -> set[str]:
    """The functions and classes of a module; none if it is not there."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    body = ast.parse(path.read_text()).body if path.exists() else []
    return {node.name for node in body if isinstance(node, kinds)}


def test_tests_import_each_other_from_one_root() -> None:
    rooms = {path.name for path in TESTS.iterdir() if path.is_dir()} | {path.stem for path in TESTS.glob("*.py")}
    elsewhere = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                named = ["." * node.level if node.level else node.module or ""]
            elif isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            else:
                continue
            elsewhere += [f"{path.name}: {name}" for name in named if name.partition(".")[0] in rooms | {""}]
    assert elsewhere == []


def test_every_named_test_exists() -> None:
    assert len(required()) > 50
    assert [test for test in required() if not defined(test)] == []


@pytest.mark.long
def test_what_the_quick_tier_must_show_is_in_it() -> None:
    quick = [test for test, tier in required().items() if tier is Tier.QUICK]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--tier=quick", *{f"tests/{test}" for test in quick}],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.partition("[")[0].removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line]
    collected = {*names, *("::".join(name.split("::")[:2]) for name in names)}  # a class stands for its tests
    assert sorted(set(quick) - collected) == []


@pytest.mark.parametrize(
    ("markers", "tiers"),
    [
        (set(), [Tier.QUICK, Tier.ALL, Tier.FULL]),
        ({"kafka"}, [Tier.QUICK, Tier.ALL, Tier.FULL]),
        ({"long"}, [Tier.ALL, Tier.FULL]),
        ({"full"}, [Tier.FULL]),
        ({"long", "full"}, [Tier.FULL]),
    ],
)
def test_each_tier_runs_what_the_one_before_it_runs_and_more(markers: set[str], tiers: list[Tier]) -> None:
    assert [tier for tier in Tier if runs(tier, markers)] == tiers


def test_a_property_is_tried_on_its_share_of_examples() -> None:
    share = examples(1000)
    assert share in EXAMPLES.values()
    assert examples(10 * 1000) == 10 * share
    assert examples(1) == 1


def marks(thing: Any) -> list[pytest.Mark]:
    found = getattr(thing, "pytestmark", [])
    return [mark for mark in (found if isinstance(found, list) else [found]) if mark.name == "needs"]


def needing() -> dict[str, Can]:
    """What each test of the contract suite needs; a module counts for all its tests."""
    found = {}
    for stem in CONTRACT:
        module = importlib.import_module(f"tests.contract.{stem}")
        found[f"{stem}.py"] = needs(marks(module))
        found |= {name: needs(marks(test)) for name, test in vars(module).items() if name.startswith("test_")}
    return {name: can for name, can in found.items() if can}


def test_the_page_lists_what_a_dialect_that_lacks_something_is_spared() -> None:
    rows = re.findall(r"^\| `Can\.(\w+)` \| (.+) \|$", README, re.MULTILINE)
    told = {Can[name]: set(re.findall("`(.+?)`", tests)) for name, tests in rows}
    assert told == {can: {name for name, needed in needing().items() if can in needed} for can in Can}
