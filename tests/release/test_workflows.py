"""What a release is made of: workflows, images' names, packages with all their files, the native core as a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pins
import pytest
import yaml
from headrace_cli.ground import ROOT
from headrace_cli.stack.stack import SERVICES
from headrace_common import __version__
from headrace_common.record import native

from tests.containers.building import NAMES

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([*words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_every_image_is_published() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert set(release["jobs"]["images"]["strategy"]["matrix"]["image"]) == {*NAMES}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("actionlint", *map(str, WORKFLOWS)), id="actionlint", marks=pytest.mark.requires("actionlint")),
        pytest.param(
            ("zizmor", "--offline", "--no-progress", ".github"), id="zizmor", marks=pytest.mark.requires("zizmor")
        ),
    ],
)
def test_a_linter_finds_nothing(command: tuple[str, ...]) -> None:
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_forms_know_every_protocol() -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "protocol.yml").read_text())
    (offered,) = (item["attributes"]["options"] for item in form["body"] if item.get("id") == "protocol")
    assert [each.name for each in SERVICES if each.name not in " ".join(offered).lower()] == []


def test_images_of_both_kinds_get_one_name(tmp_path: Path) -> None:
    told = 'echo "$HEADRACE_REGISTRY" "$HEADRACE_TAG" "$@"'
    (tmp_path / "docker").write_text(f'#!/bin/sh\n{told} >> {tmp_path}/asked\n[ "$3" != inspect ]\n')
    (tmp_path / "docker").chmod(0o755)
    given = {"REGISTRY": "registry.example/team", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert run("release/images.sh", "push", **given).returncode == 0
    assert run("release/images.sh", "join", "forward", **given).returncode == 0
    _, pushed, asked, joined = (tmp_path / "asked").read_text().splitlines()
    assert re.match(rf"registry\.example/team/ {re.escape(__version__)}-(amd64|arm64) buildx bake ", pushed)
    assert "--push --sbom=true --provenance=mode=max" in pushed
    assert {*pushed.split()[-len(NAMES) :]} == {name if name != "tools" else "live" for name in NAMES}
    reference = f"registry.example/team/headrace-forward:{__version__}"
    assert asked.endswith(f"imagetools inspect {reference}")
    assert joined.split()[-4:] == ["-t", reference, f"{reference}-amd64", f"{reference}-arm64"]


def test_each_test_of_the_lake_is_in_one_part() -> None:
    script = (ROOT / "release" / "lake_tests.sh").read_text()
    listing = (
        next(line for line in script.splitlines() if line.startswith("mapfile")).partition("< <(")[2].removesuffix(")")
    )
    parts = [run("bash", "-c", listing, "bash", str(part), "4").stdout.split() for part in (1, 2, 3, 4)]
    every = [f"tests/lake/{path.name}" for path in (ROOT / "tests" / "lake").glob("test_*.py")]
    assert sorted(name for part in parts for name in part) == sorted(every)


@pytest.mark.parametrize("part", [path.parent for path in pins.projects()], ids=lambda part: part.name)
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
