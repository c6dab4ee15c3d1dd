"""`./headrace images`: the commands that it runs, by stand-ins for docker and kind, and what a build is told of pip and cargo."""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import ROOT, CommandError
from headrace_cli.machine import images as index
from headrace_cli.machine.images import all_images, select
from headrace_cli.verbs.images import images
from headrace_common import __version__

DOCKER = """\
#!/bin/sh
echo "docker $*" >> {calls}
case "$1 $2" in
  "buildx version") exit {buildx} ;;
  "image inspect") echo 12582912 ;;
  build*)
    for word; do case "$word" in id=pip.conf,src=*) cat "${{word#*src=}}" >> {calls} ;; esac; done
    echo "the step that fails"; exit {build} ;;
esac
"""


class Machine:
    """A PATH with stand-ins, and what they were called with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls_file = folder / "calls"
        self.bin = folder / "bin"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", f"{self.bin}{os.pathsep}{os.environ['PATH']}")
        self.docker()
        for name in ("kind", "k3d"):
            self._program(name, f'#!/bin/sh\necho "{name} $*" >> {shlex.quote(str(self.calls_file))}\n')

    def docker(self, *, buildx: int = 1, build: int = 0) -> None:
        self._program("docker", DOCKER.format(calls=shlex.quote(str(self.calls_file)), buildx=buildx, build=build))

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def calls(self, first: str) -> list[list[str]]:
        return [line.split() for line in self.calls_file.read_text().splitlines() if line.startswith(first)]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_every_image_is_built_of_its_file(machine: Machine) -> None:
    assert images([]) == 0
    builds = machine.calls("docker build -f")
    assert [words[words.index("-t") + 1] for words in builds] == [
        image.reference(__version__) for image in all_images()
    ]
    for words, image in zip(builds, all_images(), strict=True):
        assert words[words.index("-f") + 1] == str(ROOT / image.dockerfile)
        assert words[-1] == str(ROOT)
        assert f"VERSION={__version__}" in words
        assert (f"SERVICE={image.name}" in words) is (image.dockerfile == "services/Dockerfile")
        assert "--load" not in words


def test_a_builder_that_keeps_images_elsewhere_is_told_to_load_them(machine: Machine) -> None:
    machine.docker(buildx=0)
    images(["forward"])
    (words,) = machine.calls("docker build --load")
    assert "headrace-forward:0.1.0" in words


ELSEWHERE = {"base": "mirror.example/python:3.12-slim"}
JARS = "https://jars.example"


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("forward", {}, []),
        ("forward", {"msk": True}, ["EXTRAS=msk"]),
        ("tools", {"msk": True}, ["EXTRAS=msk"]),
        ("lake", {"msk": True}, []),  # Java has a library of its own
        ("forward", {"native": False}, ["NATIVE=off"]),
        ("tools", {"native": False}, []),
        ("lake", ELSEWHERE, [f"PYTHON_IMAGE={ELSEWHERE['base']}", f"HEADRACE_MAVEN_REPOSITORY={JARS}"]),
    ],
)
def test_a_build_is_told_what_the_user_wants(
    machine: Machine, name: str, asked: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", JARS if asked is ELSEWHERE else "")
    images([name], **asked)
    (command,) = machine.calls("docker build -f")
    given = ("EXTRAS=", "NATIVE=", "PYTHON_IMAGE=", "HEADRACE_MAVEN_REPOSITORY=")
    assert [word for word in command if word.startswith(given)] == words


@pytest.mark.parametrize(
    ("load", "cluster", "command"),
    [
        ("kind", "", "kind load docker-image headrace-forward:t"),
        ("kind", "one", "kind load docker-image headrace-forward:t --name one"),
        ("k3d", "one", "k3d image import headrace-forward:t --cluster one"),
    ],
)
def test_a_cluster_gets_them(
    machine: Machine, capsys: pytest.CaptureFixture[str], load: str, cluster: str, command: str
) -> None:
    images(["forward"], load=load, cluster=cluster, tag="t")
    assert [" ".join(words) for words in machine.calls(load)] == [command]
    said = capsys.readouterr().out
    assert "helm install headrace deploy/helm/headrace --wait --set image.tag=t" in said


def test_it_says_what_to_paste(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    images(["forward"])
    said = capsys.readouterr().out
    assert "headrace-forward:0.1.0, 12 MiB" in said
    assert "\n  docker compose up --wait\n" in said
    images(["forward"], tag="mine")
    assert "\n  HEADRACE_TAG=mine docker compose up --wait\n" in capsys.readouterr().out
    images(["forward"], registry="registry.example/team/")
    said = capsys.readouterr().out
    assert "registry.example/team/headrace-forward:0.1.0" in said
    assert "docker push" in said
    assert "--set image.registry=registry.example/team/" in said


def test_a_build_that_fails_says_why(machine: Machine) -> None:
    machine.docker(build=1)
    with pytest.raises(CommandError, match="the step that fails"):
        images(["forward"])


def test_without_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="no docker here"):
        images([])


def test_latest_is_no_name(machine: Machine) -> None:
    with pytest.raises(CommandError, match="latest"):
        images([], tag="latest")


def test_an_image_that_there_is_not() -> None:
    with pytest.raises(CommandError, match="image carrier: it is one of courier, "):
        select(["carrier"])


LISTED = """\
global.cert='/ca.pem'
global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'
global.index-url='https://file.example/simple'
global.find-links='/wheels'
install.timeout='7'
:env:.index-url='https://user:secret@environment.example/simple'
freeze.timeout='10'
"""


def test_pips_options_are_those_of_this_machine() -> None:
    found = index.parse_options(LISTED)
    assert found["index-url"] == "https://user:secret@environment.example/simple"
    assert (found["cert"], found["timeout"]) == ("/ca.pem", "7")


def test_a_build_gets_them_as_secrets(tmp_path: Path) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("PEM")
    given = index.secrets({**index.parse_options(LISTED), "cert": str(authorities)}, {}, tmp_path)
    handed = [f"id={name},src={tmp_path / name}" for name in ("pip.conf", "cargo.toml")]
    assert given == ["--secret", f"id=ca.pem,src={authorities}", "--secret", handed[0], "--secret", handed[1]]
    text = (tmp_path / "pip.conf").read_text()
    assert "index-url = https://user:secret@environment.example/simple\n" in text
    assert "extra-index-url = https://one.example/simple\n    https://two.example/simple\n" in text
    assert f"cert = {index.CA_IN_BUILD}\n" in text
    assert "find-links" not in text
    assert (tmp_path / "pip.conf").stat().st_mode & 0o077 == 0


CARGO = """\
[build]
rustc-wrapper = "sccache"
[http]
cainfo = "/ca.pem"
multiplexing = false
[source.crates-io]
replace-with = "near"
[source.near]
registry = "sparse+https://crates.example/index/"
"""


def test_cargo_in_a_build_finds_crates_where_the_users_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    assert index.cargo_options() == {}
    (tmp_path / "config.toml").write_text(CARGO)
    (tmp_path / "authorities.pem").write_text("PEM")
    options = {"cert": str(tmp_path / "authorities.pem"), "proxy": "http://proxy.example:3128"}
    index.secrets(options, index.cargo_options(), tmp_path)
    told = tomllib.loads((tmp_path / "cargo.toml").read_text())
    expected = {**tomllib.loads(CARGO)}
    del expected["build"]
    expected["http"] |= {"cainfo": index.CA_IN_BUILD, "proxy": "http://proxy.example:3128"}
    assert told == expected
    assert (tmp_path / "cargo.toml").stat().st_mode & 0o077 == 0


def test_a_configuration_of_cargo_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text("[http")
    with pytest.raises(CommandError, match=r"config\.toml cannot be read"):
        index.cargo_options()


def test_authorities_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"/nowhere/ca\.pem, which is no file"):
        index.secrets({"cert": "/nowhere/ca.pem"}, {}, tmp_path)


def test_no_secret_is_an_argument(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:hidden@index.example/simple")
    images(["forward"])
    assert "hidden" not in " ".join(machine.calls("docker build -f")[0])
    assert "index-url = https://user:hidden@index.example/simple" in machine.calls_file.read_text()
