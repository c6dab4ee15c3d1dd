"""The launcher, in a repository of its own with one tiny dependency. A test server hands the package out or withholds it."""

from __future__ import annotations

import ast
import hashlib
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.__main__ import VERBS

from tests.cli.standin import heeds_interrupts
from tests.contract.processes import blocks_of
from tests.contract.waiting import there, wait_for

pytestmark = pytest.mark.timeout(1800)

SETTING_UP = 600
"""Seconds for a set-up. Not a guess about speed: pip alone takes half a minute of a busy machine, and a wait ends at once when
the thing is there.
"""
LAUNCHER = Path(__file__).resolve().parents[2] / "headrace"
PROGRAM = """\
import importlib.metadata as m, os, sys, tiny
print("ran", tiny.VERSION, *sys.argv[1:])
if "protocols" in sys.argv:
    print([(each.name, each.value) for each in m.entry_points(group="headrace.protocols")])
sys.exit(5 if "fail" in sys.argv or "PYTHONPATH" in os.environ else 0)
"""


class Index:
    """Wheels of the package tiny over HTTP. Requests wait while `gate` is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        for version in ("1.0", "2.0"):
            wheel_of(folder, "tiny", version, f"VERSION = '{version}'")
        index = self

        class Answer(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(folder))

            def do_GET(self) -> None:
                if self.path.endswith(".whl"):
                    index.asked.set()
                    index.gate.wait(SETTING_UP)
                super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/"


def wheel_of(folder: Path, name: str, version: str, code: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


class Repository:
    """The parts of a checkout that the launcher needs."""

    def __init__(self, root: Path, index: Index) -> None:
        self.root = root
        self.index = index
        (root / "cli" / "headrace_cli").mkdir(parents=True)
        (root / "cli" / "pyproject.toml").touch()
        (root / "cli" / "headrace_cli" / "__init__.py").touch()
        (root / "cli" / "headrace_cli" / "__main__.py").write_text(PROGRAM)
        shutil.copy(LAUNCHER, root / "headrace")
        self.pin("1.0")

    def pin(self, version: str, digest: str = "") -> None:
        (file,) = self.index.folder.glob(f"tiny-{version}-*")
        digest = digest or hashlib.sha256(file.read_bytes()).hexdigest()
        (self.root / "constraints.txt").write_text(
            f"tiny=={version} \\\n    --hash=sha256:{digest}\n    # for cli build\n"
        )

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.index.address,
            "PIP_NO_CACHE_DIR": "1",
            **variables,
        }
        return subprocess.Popen(
            [sys.executable, str(self.root / "headrace"), *arguments],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heeds_interrupts,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **variables)
        output, errors = process.communicate(timeout=SETTING_UP)
        return process.returncode, output, errors


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], Repository]]:
    (tmp_path / "wheels").mkdir()
    index = Index(tmp_path / "wheels")
    yield lambda name: Repository(tmp_path / name, index)
    index.gate.set()
    index.server.shutdown()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["up", "-h"]])
def test_help_needs_no_set_up(make: Callable[[str], Repository], arguments: list[str]) -> None:
    repository = make("repository")
    shutil.copytree(LAUNCHER.parent / "cli", repository.root / "cli", dirs_exist_ok=True)
    status, output, errors = repository.run(*arguments)
    assert (status, errors) == (0 if arguments else 2, "")
    assert output.startswith("Usage: ./headrace COMMAND ")
    assert set(re.findall(r"^  (\S+) +[A-Z]", output, re.MULTILINE)) == {*VERBS}
    assert not repository.venv.exists()


@pytest.mark.long
def test_the_life_of_an_environment(make: Callable[[str], Repository]) -> None:
    repository = make("repository")
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


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_set_up_is_taken_up_again(make: Callable[[str], Repository], how: signal.Signals) -> None:
    repository = make("repository")
    repository.index.gate.clear()
    process = repository.start("go")
    assert repository.index.asked.wait(SETTING_UP)  # pip is fetching
    if how is signal.SIGKILL:
        process.send_signal(how)  # pip lives on and holds the lock
        process.wait()
        status, _, errors = repository.run("second")
        assert (status, "Another headrace is setting up" in errors) == (1, True)
        repository.index.gate.set()
        wait_for(lambda: "Another headrace" not in repository.run("go")[2], "pip's end", SETTING_UP)
    else:
        os.killpg(process.pid, how)  # as the terminal does
        output, errors = process.communicate(timeout=SETTING_UP)
        assert (process.returncode, output) == (130, ""), errors
        assert "the next start begins again" in errors
        assert not (repository.venv / "headrace.stamp").exists()
        repository.index.gate.set()
    assert repository.run("again")[:2] == (0, "ran 1.0 again\n")


@pytest.mark.long
def test_what_pip_refuses_is_not_installed_and_pip_says_why(make: Callable[[str], Repository]) -> None:
    repository = make("repository")
    repository.pin("1.0", "0" * 64)
    status, output, errors = repository.run("go")
    assert (status, output) == (1, "")
    assert not list(repository.venv.glob("lib/python3*/site-packages/tiny*"))
    assert "ERROR: THESE PACKAGES DO NOT MATCH" in errors
    assert errors.endswith("headrace: The set-up failed; the lines above say why.\n")


def test_a_folder_that_cannot_be_used_is_one_sentence(make: Callable[[str], Repository], tmp_path: Path) -> None:
    repository, theirs = make("repository"), tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "kept").touch()
    for folder, why in (("/proc/nowhere", "cannot be written ("), (str(theirs), "is not empty, and not Headrace's")):
        status, _, errors = repository.run("go", HEADRACE_VENV=folder)
        assert (status, errors.count("\n")) == (1, 1)
        assert errors.startswith(f"headrace: {folder} {why}")
    assert [path.name for path in theirs.iterdir()] == ["kept"]


def test_a_python_that_is_too_old_reads_the_launcher_and_is_one_sentence(tmp_path: Path) -> None:
    ast.parse(LAUNCHER.read_text(), feature_version=(3, 6))
    aged = f"import sys; sys.version_info = (3, 6, 1); import runpy; runpy.run_path({str(LAUNCHER)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", aged, "up"], env={"HEADRACE_VENV": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: Headrace needs Python 3.11 or newer, and this is 3.6.1: ")


def test_the_disk_that_the_set_up_takes_is_what_it_says() -> None:
    said = re.search(r'^SIZE = "about (\d\.\d) GB"$', LAUNCHER.read_text(), re.MULTILINE)
    taken = blocks_of(Path(sys.prefix))  # another worker may be compiling modules there
    assert 0.75e9 * float(there(said)[1]) < taken < 1.25e9 * float(there(said)[1])
