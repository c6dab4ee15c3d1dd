"""The launcher, in a repository of its own with one tiny dependency."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from headrace_cli.__main__ import VERBS

pytestmark = pytest.mark.timeout(1800)

LAUNCHER = Path(__file__).resolve().parents[2] / "headrace"
PROGRAM = """\
import importlib.metadata as m, os, sys, tiny
print("ran", tiny.VERSION, *sys.argv[1:])
if "protocols" in sys.argv:
    print([(each.name, each.value) for each in m.entry_points(group="headrace.protocols")])
sys.exit(5 if "fail" in sys.argv or "PYTHONPATH" in os.environ else 0)
"""


class Repository:
    """The parts of a checkout that the launcher needs, and an index that is a folder."""

    def __init__(self, folder: Path) -> None:
        self.root, self.index = folder / "repository", folder / "index"
        self.index.mkdir()
        package = self.root / "cli" / "headrace_cli"
        package.mkdir(parents=True)
        (self.root / "cli" / "pyproject.toml").touch()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(PROGRAM)
        shutil.copy(LAUNCHER, self.root / "headrace")
        self.pin("1.0")

    def pin(self, version: str, digest: str = "") -> None:
        info = f"tiny-{version}.dist-info"
        file = self.index / f"tiny-{version}-py3-none-any.whl"
        with zipfile.ZipFile(file, "w") as wheel:
            wheel.writestr("tiny.py", f"VERSION = '{version}'")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
        digest = digest or hashlib.sha256(file.read_bytes()).hexdigest()
        pin = f"tiny=={version} \\\n    --hash=sha256:{digest}\n    # for cli build\n"
        (self.root / "constraints.txt").write_text(pin)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        known = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), "PIP_NO_CACHE_DIR": "1"}
        done = subprocess.run(
            [sys.executable, str(self.root / "headrace"), *arguments],
            cwd="/",
            env={**known, **pip, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["up", "-h"]])
def test_help_needs_no_set_up(repository: Repository, arguments: list[str]) -> None:
    shutil.copytree(LAUNCHER.parent / "cli", repository.root / "cli", dirs_exist_ok=True)
    status, output, errors = repository.run(*arguments)
    assert (status, errors) == (0 if arguments else 2, "")
    assert output.startswith("Usage: ./headrace COMMAND ")
    assert set(re.findall(r"^  (\S+) +[A-Z]", output, re.MULTILINE)) == {*VERBS}
    assert not repository.venv.exists()


@pytest.mark.long
def test_the_life_of_an_environment(repository: Repository) -> None:
    repository.pin("1.0", "0" * 64)
    status, output, errors = repository.run("go")
    assert (status, output) == (1, "")
    assert not list(repository.venv.glob("lib/python3*/site-packages/tiny*"))
    assert "ERROR: THESE PACKAGES DO NOT MATCH" in errors
    assert errors.endswith("headrace: The set-up failed; the lines above say why.\n")

    repository.pin("1.0")
    status, output, errors = repository.run("one", "two", PYTHONPATH="/of/another/python")
    assert (status, output) == (0, "ran 1.0 one two\n"), errors
    assert errors.startswith("Setting up ")
    assert repository.run("fail") == (5, "ran 1.0 fail\n", "")

    repository.pin("2.0")
    status, output, errors = repository.run("go")
    assert (status, output) == (0, "ran 2.0 go\n")
    assert errors.startswith("What Headrace needs has changed")

    # a new part, which is a protocol
    part = repository.root / "services" / "new"
    (part / "headrace_new").mkdir(parents=True)
    entry = '[project.entry-points."headrace.protocols"]\nnew = "headrace_new.protocol:PROTOCOL"\n'
    (part / "pyproject.toml").write_text(entry + '\n[tool.x]\ny = "z"\n')
    told = "ran 2.0 protocols\n[('new', 'headrace_new.protocol:PROTOCOL')]\n"
    assert repository.run("protocols")[:2] == (0, told)
    (site,) = repository.venv.glob("lib/python3*/site-packages")
    assert str(part) in (site / "headrace.pth").read_text()

    # another place, and a package that an interruption left without its RECORD, and without its module
    moved = repository.root.with_name("moved")
    repository.root.rename(moved)
    repository.root = moved
    assert repository.run("here")[:2] == (0, "ran 2.0 here\n")
    (site,) = repository.venv.glob("lib/python3*/site-packages")
    (site / "tiny.py").unlink()
    (site / "tiny-2.0.dist-info" / "RECORD").unlink()
    (repository.venv / "headrace.stamp").unlink()
    status, output, errors = repository.run("go")
    assert (status, output) == (0, "ran 2.0 go\n"), errors
    assert errors.startswith("Setting up ")

    # its Python has gone
    (repository.venv / "bin" / "python").unlink()
    (repository.venv / "bin" / "python").symlink_to("/nonexistent/python")
    assert repository.run("again")[:2] == (0, "ran 2.0 again\n")


def test_a_folder_that_cannot_be_used_is_one_sentence(repository: Repository, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "kept").touch()
    for folder, why in (("/proc/nowhere", "cannot be written ("), (str(theirs), "is not empty, and not Headrace's")):
        status, _, errors = repository.run("go", HEADRACE_VENV=folder)
        assert (status, errors.count("\n")) == (1, 1)
        assert errors.startswith(f"headrace: {folder} {why}")
    assert [path.name for path in theirs.iterdir()] == ["kept"]
    repository.venv.mkdir()
    with (repository.venv / "headrace.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "Another headrace is setting up" in repository.run("second")[2]


def test_a_python_that_is_too_old_is_one_sentence(tmp_path: Path) -> None:
    ast.parse(LAUNCHER.read_text(), feature_version=(3, 6))
    aged = f"import sys; sys.version_info = (3, 6, 1); import runpy; runpy.run_path({str(LAUNCHER)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", aged, "up"], env={"HEADRACE_VENV": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: Headrace needs Python 3.11 or newer, and this is 3.6.1: ")
