"""Which core is asked, who hears of it, and the Rust code's own tests."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from headrace_cli.machine.native import SOURCES as FOLDER
from headrace_common.kafka.record_batch import BatchBuilder
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.record import native
from headrace_common.record.contract import Reason
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.kafkaless import ENVELOPE
from tests.contract.waiting import PATIENCE, there
from tests.native import needs_native
from tests.tiers import examples

SOURCES = {"0.10.0": "16a74e2b754776f5"}
"""The start of the hash of the sources, by the core's version."""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "core", native.core)


def test_another_version_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that was built before the sources changed."""
    assert f'\nversion = "{native.VERSION}"\n' in (FOLDER / "Cargo.toml").read_text()
    module = ModuleType(native.MODULE)
    monkeypatch.setitem(sys.modules, native.MODULE, module)
    for version, used in [(native.VERSION, True), ("0.1.0", False)]:
        module.__dict__["VERSION"] = version
        assert (native._installed() is not None) == used


def test_the_sources_are_those_of_the_version() -> None:
    """A checkout keeps the core that it has built until the version is another: one that makes other records must not stay."""
    names = ("Cargo.toml", "crates.lock", *(f"src/{path.name}" for path in (FOLDER / "src").iterdir()))
    text = b"".join((FOLDER / name).read_bytes() for name in sorted(names))
    said = (
        "if what the core does has changed, so must its version, in native.py and Cargo.toml: then write the hash here"
    )
    assert {native.VERSION: hashlib.sha256(text).hexdigest()[:16]} == SOURCES, said


records = st.binary(max_size=90) | st.sampled_from([b"x" * 9000, b"x" * 300_000])
REJECT = ENVELOPE.reject(Reason.INTERNAL, "", b"", b"u." + b"f" * 32)


@needs_native
@settings(max_examples=examples(1000))
@given(st.lists(records, max_size=30), st.binary(max_size=12), st.integers(0, 2**31))
def test_a_batch_has_the_same_bytes(events: list[bytes], stamp: bytes, offset: int) -> None:
    assert there(native.NATIVE).lay(events, stamp, offset) == native.PYTHON.lay(events, stamp, offset)


@settings(max_examples=examples(1000))
@given(
    st.lists(st.tuples(st.lists(records | st.just(REJECT), max_size=30), st.integers(0, 2**41)), max_size=6),
    st.integers(0, 600) | st.integers(0, 1 << 20),
)
def test_a_batch_takes_as_many_at_once_as_singly(runs: list[tuple[list[Any], int]], limit: int) -> None:
    at_once, singly = BatchBuilder(), BatchBuilder()
    for events, stamp in runs:
        fit = [*takewhile(lambda event: type(event) is bytes and singly.add(event, stamp, limit), events)]  # noqa: B023
        assert at_once.extend(events, 0, stamp, limit) == len(fit)
    assert at_once.stamped(0, 0, 0) == singly.stamped(0, 0, 0)
    assert at_once.events() == singly.events()


def test_a_process_that_lacks_what_it_requires_ends_with_78(tmp_path: Path) -> None:
    (tmp_path / f"{native.MODULE}.py").write_text("raise ImportError\n")
    environment = {"HEADRACE_NATIVE": "require", "PYTHONPATH": ":".join([str(tmp_path), *filter(None, sys.path)])}
    ended = subprocess.run(
        [sys.executable, "-m", "headrace_common", "forward"], env=environment, capture_output=True, timeout=PATIENCE
    )
    assert ended.returncode == EXIT_CONFIG
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.timeout(10 * PATIENCE)
@pytest.mark.requires("cargo")
class TestRust:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A copy: cargo writes into the folder that it works in."""
        copy = tmp_path_factory.mktemp("native") / "native"
        return Path(shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("target")))

    @pytest.mark.parametrize(
        "command",
        [
            ("test", "--quiet", "--no-default-features"),
            ("clippy", "--quiet", "--all-targets", "--no-default-features", "--", "-D", "warnings"),
            ("clippy", "--quiet", "--", "-D", "warnings"),
            ("fmt", "--check"),
        ],
        ids=["tests", "clippy", "clippy-python", "format"],
    )
    def test_cargo(self, folder: Path, command: tuple[str, ...]) -> None:
        done = subprocess.run(["cargo", *command], cwd=folder, capture_output=True, text=True, timeout=5 * PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
