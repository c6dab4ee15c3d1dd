"""The files for developers say what the code says: hooks, versions, figures."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from headrace_cli.verbs.test import LINT
from headrace_common import __version__

ROOT = Path(__file__).resolve().parents[1]
PARTS = sorted(path for pattern in ("*", "*/*") for path in ROOT.glob(f"{pattern}/pyproject.toml"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_the_hooks_run_the_commands_of_headrace_test() -> None:
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["name"]: hook["entry"] for hook in repository["hooks"]}
    assert hooks == {name: f".venv/bin/python -m {' '.join(command)}" for name, command in LINT}
    assert all(hook["pass_filenames"] is False for hook in repository["hooks"])


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.parent.name)
def test_all_parts_have_one_version(path: Path) -> None:
    assert tomllib.loads(path.read_text())["project"]["version"] == __version__


def test_figures_beside_a_results_file_are_in_it() -> None:
    path = ROOT / "docs" / "performance.md"
    for item in re.split(r"\n(?=- |\| |\n)", path.read_text()):
        results = re.findall(r"\]\(((?:\.\./)+benchmarks/results/[^)]+)\)", item)
        if results:
            told = "".join((path.parent / name).read_text() for name in results)
            text = re.sub(r"\[[^]]*\]\([^)]*\)", "", item)
            figures = re.findall(r"\d[\d,]*\.?\d+", text)
            missing = [figure for figure in figures if figure not in told and figure.replace(",", "") not in told]
            assert missing == [], f"{results} has not {missing}"
