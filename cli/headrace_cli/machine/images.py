"""The images: their names, the commands that build, measure and load them, and what pip and cargo in a build must know.

It imports nothing but Python's own: release/images.py runs without our packages' dependencies.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from headrace_cli.ground import ROOT, CommandError, check_known

NAME: Final = "headrace-{}"

PASSED: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""pip's options that mean the same inside a build. Options with paths of this machine do not."""
OF_CARGO: Final = ("source", "registries", "http", "net")
"""The tables of cargo's configuration that mean the same inside a build."""
CA_IN_BUILD: Final = "/run/secrets/ca.pem"
"""Where the Dockerfiles mount the secret ``ca.pem``."""


class ImageTarget(StrEnum):
    """Where built images go, beside the builder's own store."""

    DOCKER = "docker"
    KIND = "kind"
    K3D = "k3d"


@dataclass(frozen=True)
class Image:
    """One image. `arguments` are those of its Dockerfile, `dockerfile` is relative to the checkout."""

    name: str
    dockerfile: str
    arguments: Mapping[str, str]

    def reference(self, tag: str, registry: str = "") -> str:
        """Return the image's full name, for example ``registry.example/team/headrace-forward:0.1.0``."""
        prefix = f"{registry.rstrip('/')}/" if registry else ""
        return f"{prefix}{NAME.format(self.name)}:{tag}"


def all_images() -> list[Image]:
    """Return every image that the checkout can build: a receiver that cannot be started yet has none."""
    services = sorted((ROOT / "services").glob("*/headrace_*/__main__.py"))
    names = [path.parent.parent.name for path in services]
    return [
        *(Image(name, "services/Dockerfile", {"SERVICE": name}) for name in names),
        Image("tools", "cli/Dockerfile", {}),
        Image("lake", "spark_jobs/Dockerfile", {}),
    ]


def select(names: Sequence[str]) -> list[Image]:
    """Return the images called `names`, or all if it is empty. Raises `CommandError` for an unknown name."""
    known = {image.name: image for image in all_images()}
    check_known("image", names, known)
    return [known[name] for name in names] if names else list(known.values())


def build_command(
    image: Image, reference: str, arguments: Mapping[str, str], secrets: Iterable[str], *, buildx: bool
) -> list[str]:
    """Return the ``docker build`` of one image. With `buildx` a builder may keep its images elsewhere, so it is told to load."""
    given = [
        word for name, value in {**image.arguments, **arguments}.items() for word in ("--build-arg", f"{name}={value}")
    ]
    load = ["--load"] if buildx else []
    return ["docker", "build", *load, "-f", str(ROOT / image.dockerfile), "-t", reference, *given, *secrets, str(ROOT)]


def load_command(target: ImageTarget, references: Sequence[str], cluster: str) -> list[str] | None:
    """Return the command that copies images into a cluster; None for Docker, which has built them."""
    if target is ImageTarget.KIND:
        return ["kind", "load", "docker-image", *references, *(["--name", cluster] if cluster else [])]
    if target is ImageTarget.K3D:
        return ["k3d", "image", "import", *references, *(["--cluster", cluster] if cluster else [])]
    return None


def check_docker() -> None:
    """Raise `CommandError` unless a Docker daemon answers."""
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        raise CommandError("There is no docker here: install it, or build on a machine that has it.") from None
    except subprocess.TimeoutExpired:
        raise CommandError("Docker's daemon does not answer.") from None
    if answer.returncode:
        raise CommandError(f"Docker cannot be used: {(answer.stderr.strip() or 'no reason given').splitlines()[-1]}")


def has_buildx() -> bool:
    """Return whether ``docker build`` is buildx; older clients build with BuildKit by themselves."""
    return subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0


def revision() -> str:
    """Return the commit of the checkout, with ``-dirty`` if files differ from it; empty outside of a clone."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def run(command: Sequence[str], log: Path) -> None:
    """Run a command with BuildKit; what it prints goes to `log`. Raises `CommandError` with its last lines if it fails."""
    try:
        with log.open("wb") as output:
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False,
                env={**os.environ, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"},
            ).returncode  # fmt: skip
    except FileNotFoundError:
        raise CommandError(f"There is no {command[0]} here.") from None
    if status:
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise CommandError("\n".join([f"{' '.join(command[:3])} … failed:", *said[-25:]]))


def size(reference: str) -> int:
    """Return an image's size in bytes; 0 if it is not there."""
    answer = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Size}}", reference], capture_output=True, text=True, check=False
    )
    return int(answer.stdout) if answer.returncode == 0 else 0


def pip_options() -> dict[str, str]:
    """Return pip's options on this machine, from its files and variables; variables win. Raises `CommandError`."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise CommandError(f"pip cannot read its configuration: {answer.stderr.strip()}")
    return parse_options(answer.stdout)


def parse_options(listed: str) -> dict[str, str]:
    """Return the options of ``pip config list``: lines ``section.option='value'``, those of the environment under ``:env:``."""
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        name, equals, value = line.partition("=")
        section, dot, option = name.strip().rpartition(".")
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section, -1)
        if not equals or not dot or rank < found.get(option, (0, ""))[0]:
            continue
        found[option] = (rank, str(ast.literal_eval(value)))
    return {option: value for option, (_, value) in found.items()}


def cargo_options() -> dict[str, Any]:
    """Return where this user's cargo configuration says that crates are. Raises `CommandError` if it is no TOML."""
    path = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo", "config.toml")
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CommandError(f"cargo's configuration {path} cannot be read: {error}") from None
    return {name: found[name] for name in OF_CARGO if name in found}


def _lines(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the lines of a table of TOML. Values of cargo's configuration are written as in JSON."""
    for name, value in table.items():
        key = prefix + json.dumps(name)
        if isinstance(value, dict):
            yield from _lines(value, f"{key}.")
        else:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"


def secrets(options: Mapping[str, str], cargo: Mapping[str, Any], folder: Path) -> list[str]:
    """Write the secrets for a build into `folder`, from the `options` of pip and those of `cargo`, which gets pip's proxy and
    authorities, too. Return the options of ``docker build`` that hand them over.
    """
    lines = ["[global]"]
    for option in PASSED:
        if option in options:
            first, *more = options[option].split()
            lines += [f"{option} = {first}", *(f"    {line}" for line in more)]
    arguments = []
    authorities = options.get("cert", "")
    if authorities:
        if not Path(authorities).is_file():
            raise CommandError(f"pip's option cert names {authorities}, which is no file.")
        lines.append(f"cert = {CA_IN_BUILD}")
        arguments += ["--secret", f"id=ca.pem,src={authorities}"]
    http = {"proxy": options["proxy"]} if "proxy" in options else {}
    http |= cargo.get("http", {}) | ({"cainfo": CA_IN_BUILD} if authorities else {})
    for name, text in (("pip.conf", lines), ("cargo.toml", list(_lines({**cargo, "http": http})))):
        written = folder / name
        written.touch(mode=0o600)
        written.write_text("\n".join(text) + "\n")
        arguments += ["--secret", f"id={name},src={written}"]
    return arguments
