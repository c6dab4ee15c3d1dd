"""The gate of mutants tells apart what tests notice, what they do not, and what none of them comes by."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from textwrap import dedent

from tests.gate import switch
from tests.gate.__main__ import judged
from tests.gate.running import Copy
from tests.gate.source import first, mutants, write

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

    def forgotten() -> int:
        return 5
""")
TESTS = dedent("""\
    import subprocess, sys
    from toy import grown

    assert grown(-2) in (1, 9), "what fails already when tests are imported is noticed, too"

    def test_grown():
        assert grown(2) == 5

    def test_most():
        assert subprocess.run([sys.executable, "-c", "import toy; assert toy.grown(12) == 9"]).returncode == 0
""")
FOUND = [
    ("drop", 'told.append(\n        "nor this",\n    )', "survived"),
    ("negate", "value > most", "killed"),
    ("plus/minus", "value + 3", "killed"),
    ("one more", "5", "no test"),
]


def test_mutants_are_killed_survive_or_have_no_test(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(Path(switch.__file__).parent, root / "tests" / "gate")
    shutil.copyfile(switch.__file__, root / "headrace_mutants.py")
    (root / "conftest.py").write_text('def pytest_addoption(parser): parser.addoption("--tier")')
    (root / "tests" / "test_toy.py").write_text(TESTS)
    (root / "toy.py").write_text(TOY)
    numbered = dict(enumerate(first(root, list(mutants("toy.py", TOY.encode())), count=9), 1))
    write(root, numbered)
    copy = Copy(tmp_path, root, sys.executable, {"PATH": ""})
    copy.look(1, [])
    assert (len(copy.seconds), copy.failed) == (2, []), "with no mutant active, the toy does what it did"
    assert copy.hits[2] == {"tests/test_toy.py::test_grown", "tests/test_toy.py::test_most"}
    lines = [judged(copy, number, mutant) for number, mutant in numbered.items()]
    assert [(line["kind"], line["old"], line["result"]) for line in lines] == FOUND
