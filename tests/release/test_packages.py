"""The native core as a wheel, by the script that makes it, and what belongs to the packages that images install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from headrace_cli.ground import ROOT
from headrace_common.record import native

PARTS = sorted(path.parent for pattern in ("*", "*/*") for path in ROOT.glob(f"{pattern}/pyproject.toml"))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_package_has_all_its_files(part: Path) -> None:
    """An image installs the packages: a file that none of them declares is missing there alone."""
    settings = tomllib.loads((part / "pyproject.toml").read_text())["tool"]["setuptools"]
    declared = {
        path
        for package, patterns in settings["package-data"].items()
        for pattern in patterns
        for path in part.joinpath(*package.split(".")).glob(pattern)
    }
    assert declared
    listed = subprocess.run(["git", "-C", part, "ls-files", "headrace_*"], capture_output=True, text=True, check=True)
    others = {part / name for name in listed.stdout.splitlines() if not name.endswith(".py")}
    assert others <= declared


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.requires("cargo")
def test_the_native_core_is_a_wheel_that_receivers_use(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "release" / "native.sh", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"headrace_native {native.VERSION}" in done.stdout.splitlines()
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.startswith(f"headrace_native-{native.VERSION}-cp311-abi3-")
    assert "-linux_" not in wheel.name  # an index takes those alone that say which systems have what they need
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "there")
    asked = "from headrace_common.record import native; print(native.choose(native.REQUIRE), native.NATIVE.__file__)"
    path = ":".join([str(tmp_path / "there"), *filter(None, sys.path)])
    told = subprocess.run([sys.executable, "-c", asked], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert told.stdout.split() == [str(tmp_path / "there" / "headrace_native" / "__init__.py")], told.stderr
