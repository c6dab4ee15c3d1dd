"""Each tier runs what the one before it runs, and tests import each other from one root."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tiers import EXAMPLES, Tier, examples, runs

TESTS = Path(__file__).parent


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
