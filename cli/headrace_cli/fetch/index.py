"""What pip in an image's build must know of this machine: index, proxy, authorities. It gets them as secrets of the build.

A secret is there while a command of the build runs and in no layer, so an index's password stays out of the images.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace_cli.errors import CommandError

PASSED: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""pip's options that mean the same inside a build. Options with paths of this machine do not."""

CA_IN_BUILD: Final = "/run/secrets/ca.pem"
"""Where the Dockerfiles mount the secret ``ca.pem``."""


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


def secrets(options: Mapping[str, str], folder: Path) -> list[str]:
    """Write the secrets for a build into `folder`; return the options of ``docker build`` that hand them over."""
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
    written = folder / "pip.conf"
    written.touch(mode=0o600)
    written.write_text("\n".join(lines) + "\n")
    return [*arguments, "--secret", f"id=pip.conf,src={written}"]
