"""The launcher, in a repository of its own with one tiny dependency. A test server hands the package out or withholds it."""

from __future__ import annotations

import hashlib
import http.server
import importlib.machinery
import importlib.util
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
from types import ModuleType
from typing import Any

import pytest
import typer
from headrace_cli.__main__ import app

from tests.cli.standin import heeds_interrupts
from tests.contract.processes import blocks_of
from tests.contract.waiting import there

pytestmark = pytest.mark.timeout(1800)

SETTING_UP = 600
"""Seconds for a set-up. Not a guess about speed: pip alone takes half a minute of a busy machine, and a wait ends at once when
the thing is there.
"""
LAUNCHER = Path(__file__).resolve().parents[2] / "headrace"
PROGRAM = """\
import sys, tiny
print("ran", tiny.VERSION, *sys.argv[1:])
sys.exit(5 if "fail" in sys.argv else 0)
"""

PROTOCOLS = """\
import importlib.metadata as m
print([(each.name, each.value) for each in m.entry_points(group="headrace.protocols")])
"""


BACKEND = """\
import pathlib, shutil
def build_wheel(folder, settings=None, metadata=None):
    (wheel,) = pathlib.Path("built").iterdir()
    shutil.copy(wheel, folder)
    return wheel.name
"""
"""Builds tiny 2.0 from its source, as setuptools builds pyspark."""


class Index:
    """The package tiny over HTTP: 1.0 is a wheel, 2.0 a source that `maker` builds. Requests for a wheel wait while `gate` is
    closed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        wheel_of(folder, "tiny", "1.0", "VERSION = '1.0'")
        wheel_of(folder, "maker", "1.0", BACKEND)
        source = folder / "tiny-2.0"
        (source / "built").mkdir(parents=True)
        wheel_of(source / "built", "tiny", "2.0", "VERSION = '2.0'")
        (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 2.0\n")
        (source / "pyproject.toml").write_text('[build-system]\nrequires = ["maker"]\nbuild-backend = "maker"\n')
        shutil.make_archive(str(source), "gztar", folder, source.name)
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

    def pin(self, version: str) -> None:
        (file,) = self.index.folder.glob(f"tiny-{version}*.[wt]*")
        self.pin_as(version, hashlib.sha256(file.read_bytes()).hexdigest())

    def pin_as(self, version: str, digest: str) -> None:
        (maker,) = self.index.folder.glob("maker-*")
        pins = [
            ("tiny", version, digest, "cli"),
            ("maker", "1.0", hashlib.sha256(maker.read_bytes()).hexdigest(), "build"),
        ]
        (self.root / "constraints.txt").write_text(
            "# pins\n"
            + "".join(f"{each}=={at} \\\n    --hash=sha256:{sha}\n    # for {part}\n" for each, at, sha, part in pins)
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
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    assert set(re.findall(r"^  (\S+) +[A-Z]", output, re.MULTILINE)) == set(command.commands)
    assert repository.run(*arguments, _HEADRACE_COMPLETE="complete_bash") == (0, "", "")
    assert not repository.venv.exists()


@pytest.mark.long
def test_the_life_of_an_environment(make: Callable[[str], Repository]) -> None:
    repository = make("repository")
    status, output, errors = repository.run("one", "two")
    assert (status, output) == (0, "ran 1.0 one two\n"), errors
    assert errors.startswith("Setting up ")
    assert repository.run("fail") == (5, "ran 1.0 fail\n", "")

    repository.pin("2.0")
    status, output, errors = repository.run("go")
    assert (status, output) == (0, "ran 2.0 go\n")
    assert errors.startswith("What Headrace needs has changed")

    # a package that an interruption left without its RECORD, and without its module
    (site,) = repository.venv.glob("lib/python3*/site-packages")
    (site / "tiny.py").unlink()
    (site / "tiny-2.0.dist-info" / "RECORD").unlink()
    (repository.venv / "headrace.stamp").unlink()
    status, output, errors = repository.run("go")
    assert (status, output) == (0, "ran 2.0 go\n"), errors
    assert errors.startswith("Setting up ")

    # a new part
    (repository.root / "services" / "new" / "headrace_new").mkdir(parents=True)
    (repository.root / "services" / "new" / "pyproject.toml").touch()
    assert repository.run("go")[:2] == (0, "ran 2.0 go\n")
    assert str(repository.root / "services" / "new") in (site / "headrace.pth").read_text()
    asked = [str(repository.venv / "bin" / "python"), "-c", PROTOCOLS]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "[]\n"

    # it is a protocol
    declared = (
        '[project.entry-points."headrace.protocols"]\nnew = "headrace_new.protocol:PROTOCOL"\n\n[tool.x]\ny = "z"\n'
    )
    (repository.root / "services" / "new" / "pyproject.toml").write_text(declared)
    assert repository.run("go")[:2] == (0, "ran 2.0 go\n")
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == (
        "[('new', 'headrace_new.protocol:PROTOCOL')]\n"
    )

    # another place
    moved = repository.root.with_name("moved")
    repository.root.rename(moved)
    repository.root = moved
    assert repository.run("here")[:2] == (0, "ran 2.0 here\n")

    # its Python has gone
    (repository.venv / "bin" / "python").unlink()
    (repository.venv / "bin" / "python").symlink_to("/nonexistent/python")
    assert repository.run("again")[:2] == (0, "ran 2.0 again\n")


@pytest.mark.long
def test_two_first_starts_at_once(make: Callable[[str], Repository]) -> None:
    repository = make("repository")
    repository.index.gate.clear()
    first = repository.start("first")
    assert repository.index.asked.wait(SETTING_UP)
    second = repository.start("second")
    assert there(second.stderr).readline().startswith("Another headrace is setting up")
    repository.index.gate.set()
    output, errors = first.communicate(timeout=SETTING_UP)
    assert (first.returncode, output) == (0, "ran 1.0 first\n"), errors
    output, errors = second.communicate(timeout=SETTING_UP)
    assert (second.returncode, output, errors) == (0, "ran 1.0 second\n", "")


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_set_up_is_taken_up_again(make: Callable[[str], Repository], how: signal.Signals) -> None:
    repository = make("repository")
    repository.index.gate.clear()
    process = repository.start("go")
    assert repository.index.asked.wait(SETTING_UP)  # pip is fetching
    if how is signal.SIGKILL:
        process.send_signal(how)  # pip lives on and holds the lock
    else:
        os.killpg(process.pid, how)  # as the terminal does
    if how is signal.SIGINT:
        output, errors = process.communicate(timeout=SETTING_UP)
        assert (process.returncode, output) == (130, ""), errors
        assert "the next start begins again" in errors
    assert not (repository.venv / "headrace.stamp").exists()
    again = repository.start("again")
    if how is signal.SIGKILL:
        assert there(again.stderr).readline().startswith("Another headrace is setting up")
    repository.index.gate.set()
    output, errors = again.communicate(timeout=SETTING_UP)
    assert (again.returncode, output) == (0, "ran 1.0 again\n"), errors
    assert "Setting up " in errors


@pytest.mark.long
@pytest.mark.parametrize(
    ("digest", "variables", "said"),
    [
        ("", {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "1"},
         "ERROR: No matching distribution"),
        ("0" * 64, {}, "ERROR: THESE PACKAGES DO NOT MATCH"),
    ],
)  # fmt: skip
def test_what_pip_refuses_is_not_installed_and_pip_says_why(
    make: Callable[[str], Repository], digest: str, variables: dict[str, str], said: str
) -> None:
    repository = make("repository")
    if digest:
        repository.pin_as("1.0", digest)
    status, output, errors = repository.run("go", **variables)
    assert (status, output) == (1, "")
    assert not list(repository.venv.glob("lib/python3*/site-packages/tiny*"))
    assert said in errors
    assert errors.endswith("headrace: The set-up failed; the lines above say why.\n")


def test_a_folder_that_cannot_be_used_is_one_sentence(make: Callable[[str], Repository], tmp_path: Path) -> None:
    repository, theirs = make("repository"), tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "kept").touch()
    for folder, why in (("/proc/nowhere", "cannot be written ("), (str(theirs), "is not empty, and not Headrace's")):
        status, _, errors = repository.run("go", HEADRACE_VENV=folder)
        assert status == 1
        assert errors.startswith(f"headrace: {folder} {why}")
        assert errors.count("\n") == 1
    assert [path.name for path in theirs.iterdir()] == ["kept"]


@pytest.fixture
def launcher() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("launcher", str(LAUNCHER))
    spec = there(importlib.util.spec_from_loader("launcher", loader))
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_python_that_is_too_old_is_one_sentence(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "OLDEST", (4, 0))
    with pytest.raises(launcher.SetupError, match=r"needs Python 3\.11 or newer"):
        launcher.set_up("")


def test_the_command_line_sees_no_packages_of_another_python(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUTF8"):
        monkeypatch.setenv(name, "1")
    ran: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execve", lambda _program, _command, environment: ran.append(environment))
    launcher.run(["status"])
    assert {"PYTHONPATH", "PYTHONHOME", "PYTHONUTF8"} & ran[0].keys() == {"PYTHONUTF8"}


def test_an_old_python_can_read_the_launcher() -> None:
    """An old Python must get far enough to say that it is too old: the launcher uses only the grammar of Python 3.6."""
    import ast

    ast.parse(LAUNCHER.read_text(), feature_version=(3, 6))


def test_the_disk_that_the_set_up_takes_is_what_it_says(launcher: ModuleType) -> None:
    taken = blocks_of(Path(sys.prefix))  # another worker may be compiling modules there
    assert 0.75 * launcher.DISK_NEEDED < taken < 1.25 * launcher.DISK_NEEDED
