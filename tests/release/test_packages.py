"""What a release is made of, by the scripts that make it: packages that are whole, the same each time, and run by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import psutil
import pytest
from headrace_cli.ground import ROOT
from headrace_common import __version__
from headrace_common.record import native

from tests.contract.processes import command
from tests.lake.lander import QUICK

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def build(dist: Path) -> Path:
    done = subprocess.run([sys.executable, ROOT / "release" / "packages.py", dist], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return dist


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def test_a_wheel_has_every_file_of_its_package_and_the_licence(dist: Path) -> None:
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
    parts = sorted(path.parent for pattern in ("*", "*/*") for path in ROOT.glob(f"{pattern}/pyproject.toml"))
    wheels = {path.name.partition("-")[0]: path for path in dist.glob("*.whl")}
    assert len(wheels) == len(parts) == len(list(dist.glob("*.tar.gz")))
    held: set[str] = set()
    for path in wheels.values():
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        assert f"{'-'.join(path.name.split('-')[:2])}.dist-info/licenses/LICENSE" in names
        held |= set(names)
    for part in parts:
        prefix = f"{part.relative_to(ROOT)}/"
        ours = {name.removeprefix(prefix) for name in files if name.startswith(f"{prefix}headrace_")}
        assert ours - held == set()


def test_parts_of_one_version_belong_together(dist: Path) -> None:
    for name, part in (("headrace", "cli"), ("headrace_live", "live"), ("headrace_reader", "libs/reader")):
        (wheel,) = dist.glob(f"{name}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            metadata = archive.read(f"{name}-{__version__}.dist-info/METADATA").decode()
        needed = [line.split(" ")[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: headrace")]
        declared = tomllib.loads((ROOT / part / "pyproject.toml").read_text())["project"]["dependencies"]
        ours = [each for each in declared if each.startswith("headrace")]
        assert needed == [f"{each}=={__version__}" for each in ours] != []


def test_a_commit_has_one_wheel_of_each_part(dist: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert {path.name: path.read_bytes() for path in again.glob("*.whl")} == {
        path.name: path.read_bytes() for path in dist.glob("*.whl")
    }


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


@pytest.mark.kafka
@pytest.mark.spark
def test_the_demo_runs_from_an_empty_environment_counts_the_same_everywhere_and_leaves_nothing(
    dist: Path, tmp_path: Path
) -> None:
    tried = [sys.executable, str(ROOT / "release" / "try_packages.py"), str(dist), "--events", "2000"]
    done = subprocess.run(
        [*tried, "--others", sysconfig.get_paths()["purelib"]], env={**os.environ, **QUICK, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    names = ("sent", "acknowledged", "on the topic", "in the lake", "of them distinct ids")
    counted = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith(names)]
    assert counted == ["2,000"] * len(names)
    assert [process for process in psutil.process_iter() if str(tmp_path) in " ".join(command(process))] == []
    assert list(tmp_path.glob("headrace-*")) == []
