"""The Java that is found: the machine's own, or the bundled one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from headrace_cli.machine import java


def bundled() -> java.Java:
    path = java._bundled()
    assert path is not None
    found = java._probe(path, bundled=True)
    assert found is not None
    return found


class TestJava:
    def test_the_bundled_one_takes_the_place_of_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        found = java.find_java.__wrapped__()
        assert found.bundled
        assert java.OLDEST <= found.version <= java.NEWEST

    def test_the_shim_drops_the_one_argument(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        module = "--add-modules=jdk.incubator.vector"
        assert subprocess.run([java._bundled(), module, "-version"], capture_output=True).returncode != 0
        for _ in range(2):  # the second time the shim is already there
            found = bundled()
            done = subprocess.run([found.executable, "-Dx=a b", module, "-version"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        assert (found.home / "release").exists()

    @pytest.mark.parametrize(("version", "fits"), [(11, False), (21, True), (99, False)])
    def test_the_one_that_java_home_names_comes_first_if_it_fits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, fits: bool
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        home = tmp_path / "theirs"
        (home / "bin").mkdir(parents=True)
        fake = home / "bin" / "java"
        said = f"    java.home = {home}\njava.base@{version}\njdk.incubator.vector@1\n"
        fake.write_text(f"#!/bin/sh\nprintf '{said}'\n")
        fake.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", str(tmp_path))
        found = java.find_java.__wrapped__()
        assert (found == java.Java(home, version, bundled=False)) is fits
        assert found.bundled is not fits
