#!/usr/bin/env python3
"""Publishes the images: each machine pushes those of its own kind, then one of them joins both kinds under one name.

    python release/images.py push --registry HOST/PATH          on an amd64 and on an arm64 machine
    python release/images.py join --registry HOST/PATH          afterwards, on any
    python release/images.py digest NAME --registry HOST/PATH   prints `name=` and `digest=` of an image, for its attestation

Docker must have logged in at the registry. BuildKit adds a bill of materials and the provenance to each image. `--dry-run`
prints the commands instead. A tag that was pushed does not move: `join` fails if the name is taken.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "cli"), str(ROOT / "libs" / "common")]

from headrace_cli.machine.images import Image, all_images, revision, select  # noqa: E402
from headrace_common import __version__  # noqa: E402

KINDS: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def push(image: Image, registry: str) -> list[str]:
    """Returns the command that builds and pushes an image for this machine's kind of processor."""
    labels = {**image.arguments, "VERSION": __version__, "REVISION": revision()}
    given = [word for name, value in labels.items() for word in ("--build-arg", f"{name}={value}")]
    reference = f"{image.reference(__version__, registry)}-{KINDS[platform.machine()]}"
    attested = ["--sbom=true", "--provenance=mode=max", "--push"]
    return [
        "docker",
        "buildx",
        "build",
        *attested,
        "-f",
        str(ROOT / image.dockerfile),
        "-t",
        reference,
        *given,
        str(ROOT),
    ]


def join(image: Image, registry: str) -> list[str]:
    """Returns the command that gives the images of all kinds their common name."""
    reference = image.reference(__version__, registry)
    return [
        "docker",
        "buildx",
        "imagetools",
        "create",
        "-t",
        reference,
        *(f"{reference}-{kind}" for kind in KINDS.values()),
    ]


def look(reference: str, template: str) -> list[str]:
    """Returns the command that says something of a pushed image."""
    return ["docker", "buildx", "imagetools", "inspect", "--format", template, reference]


def run(command: Sequence[str], *, dry: bool) -> None:
    """Runs a command, or prints it. Raises `subprocess.CalledProcessError` if it fails."""
    print(*command, flush=True)
    if not dry:
        subprocess.run(command, check=True)


def main() -> None:
    """Does what the arguments ask for."""
    parser = argparse.ArgumentParser(description="Publishes the images.")
    parser.add_argument("what", choices=["push", "join", "digest"])
    parser.add_argument("names", nargs="*", help="images; default: all")
    parser.add_argument("--registry", required=True, metavar="HOST/PATH")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    given = parser.parse_args()
    images = select(given.names) if given.names else all_images()
    if given.what == "push":
        run(["docker", "buildx", "create", "--use"], dry=given.dry_run)  # the default builder writes no attestations
    for image in images:
        reference = image.reference(__version__, given.registry)
        if given.what == "push":
            run(push(image, given.registry), dry=given.dry_run)
        elif given.what == "digest":
            asked = look(reference, "{{.Manifest.Digest}}")
            print(
                f"name={reference.rpartition(':')[0]}", *([] if given.dry_run else [f"digest={said(asked)}"]), sep="\n"
            )
        else:
            if not given.dry_run and subprocess.run(look(reference, "{{.Name}}"), capture_output=True).returncode == 0:
                sys.exit(f"{reference} exists: a tag that was pushed does not move.")
            run(join(image, given.registry), dry=given.dry_run)


def said(command: Sequence[str]) -> str:
    """Returns what a command prints. Raises `subprocess.CalledProcessError` if it fails."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()
