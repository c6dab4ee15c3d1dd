"""The gate of mutants tells apart what tests notice, what they do not, and what none of them comes by."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.gate import switch
from tests.gate.__main__ import judged
from tests.gate.source import chosen, write

TOY = dedent("""\
    '''A toy.'''
    from __future__ import annotations

    def grown(value: int = 1, *, most: int = 9) -> int:
        told = [f"not in here: {value + 1}"]
        told.append(
            "nor this",
        )
        if value > most:
            return most
        return value + 3

    def far() -> int:
        return 7

    def forgotten() -> int:
        return 5
""")
TESTS = dedent("""\
    import subprocess, sys
    from headrace_toy.toy import grown

    assert grown(-2) in (1, 9), "what fails already when tests are imported is noticed, too"

    def test_grown():
        assert (grown(2), grown(12)) == (5, 9)

    def test_far():
        assert subprocess.run([sys.executable, "-c", "from headrace_toy import toy; assert toy.far() == 7"]).returncode == 0
""")
FOUND = [
    ("drop", 'told.append(\n        "nor this",\n    )', "survived"),
    ("negate", "value > most", "killed"),
    ("plus/minus", "value + 3", "killed"),
    ("one more", "7", "killed"),
    ("one more", "5", "no test"),
]


@pytest.mark.long  # it starts pytest, and that once more
def test_mutants_are_killed_survive_or_have_no_test(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    (root / "headrace_toy").mkdir(parents=True)
    shutil.copyfile(switch.__file__, root / "headrace_mutants.py")
    (root / "conftest.py").write_text('def pytest_addoption(parser): parser.addoption("--tier")')
    (root / "test_toy.py").write_text(TESTS)
    (root / "headrace_toy" / "toy.py").write_text(TOY)
    found = chosen(root, ".", count=9)
    write(root, found)
    results = dict(judged(root, sys.executable, {"PATH": os.environ["PATH"]}))
    assert [(mutant.kind, mutant.old, results.get(number, "no test")) for number, mutant in enumerate(found)] == FOUND
