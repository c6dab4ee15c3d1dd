"""``images``: builds the container images, brings them to a cluster, and says what to do next."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace_common import __version__

from headrace_cli.ground import CommandError, check_checkout
from headrace_cli.machine.images import (
    Target,
    build_command,
    cargo_options,
    check_docker,
    has_buildx,
    load_command,
    pip_options,
    revision,
    run,
    secrets,
    select,
    size,
)
from headrace_cli.machine.jars import REPOSITORY_VARIABLE
from headrace_cli.verbs import console


@dataclass(frozen=True)
class ImageOptions:
    load: Target
    cluster: str
    tag: str
    registry: str
    base: str
    maven: str
    msk: bool = False
    native: bool = True


def images(names: Sequence[str], options: ImageOptions) -> int:
    """Build the images called `names`, all if it is empty, and load them. Return 0, or raise `CommandError`."""
    check_checkout("images")
    selected = select(names)
    tag = options.tag or __version__
    if tag == "latest":
        raise CommandError(
            "--tag latest: a cluster would never know whether it has this image. Give it a name.", status=2
        )
    check_docker()
    buildx = has_buildx()
    arguments = {"VERSION": tag, "REVISION": revision()}
    if options.base:
        arguments["PYTHON_IMAGE"] = options.base
    if options.maven:
        arguments[REPOSITORY_VARIABLE] = options.maven
    extras = {"EXTRAS": "msk"} if options.msk else {}
    references = []
    with tempfile.TemporaryDirectory(prefix="headrace-images-") as folder:
        handed = secrets(pip_options(), cargo_options(), Path(folder))
        for image in selected:
            began = time.monotonic()
            reference = image.reference(tag, options.registry)
            given = {**arguments, **({} if image.name == "lake" else extras)}  # Java has a library of its own
            if "SERVICE" in image.arguments and not options.native:
                given["NATIVE"] = "off"
            run(build_command(image, reference, given, handed, buildx=buildx), Path(folder) / "build.log")
            references.append(reference)
            took = time.monotonic() - began
            console.line(image.name, "good", f"{reference}, {console.format_size(size(reference))}, {took:.0f} s")
        loading = load_command(options.load, references, options.cluster)
        if loading is not None:
            run(loading, Path(folder) / "load.log")
            console.line("load", "good", f"{options.load.value} has them")
    console.OUT.print("\n" + next_steps(options, tag), markup=False)
    return 0


def next_steps(options: ImageOptions, tag: str) -> str:
    lines = []
    changed = tag != __version__
    if options.registry:
        lines += [
            "Push them:",
            f"  docker images --format '{{{{.Repository}}}}:{{{{.Tag}}}}' '{options.registry.rstrip('/')}/headrace-*:{tag}' \\",
        ]
        lines += ["    | xargs -n 1 docker push"]
    if options.load is Target.DOCKER and not options.registry:
        given = f"HEADRACE_TAG={tag} " if changed else ""
        lines += ["Next:", f"  {given}docker compose up --wait"]
    else:
        values = [f"--set image.registry={options.registry}"] * bool(options.registry)
        values += [f"--set image.tag={tag}"] * changed
        lines += [
            "Next:",
            " ".join(["  helm install headrace deploy/helm/headrace --wait", *values]),
            "  helm test headrace",
        ]
    return "\n".join(lines)
