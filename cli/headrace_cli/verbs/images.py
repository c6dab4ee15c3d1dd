"""``images``: builds the container images, brings them to a cluster, and says what to do next."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from headrace_common import __version__

from headrace_cli.ground import CommandError, check_checkout, check_known
from headrace_cli.machine.images import (
    ImageTarget,
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

app = typer.Typer()


@app.command()
def images(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Images, for example forward; default: all.")
    ] = None,
    load: Annotated[
        str, typer.Option(metavar="kind|k3d|docker", help="Where they go; docker: they stay where they were built.")
    ] = "docker",
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The cluster of kind or k3d; default: its own.")] = "",
    tag: Annotated[str, typer.Option(help="Tag of the images; default: the version.")] = "",
    registry: Annotated[
        str, typer.Option(metavar="HOST/PATH", help="Put this before the names, for your own registry.")
    ] = "",
    base: Annotated[
        str,
        typer.Option(metavar="IMAGE", envvar="HEADRACE_PYTHON_IMAGE", help="Base image; default: python:3.12-slim."),
    ] = "",
    msk: Annotated[bool, typer.Option("--msk", help="With what logs in at Amazon MSK by IAM: 35 MB more.")] = False,
    native: Annotated[
        bool,
        typer.Option(
            " /--no-native", help="Receivers without the native core: no crate is fetched, each event costs more."
        ),
    ] = True,
) -> int:
    """Build the container images with Docker. pip's index, proxy and CA, and cargo's, are those of this machine."""
    check_checkout("images")
    check_known("--load", [load], ImageTarget)
    selected = select(names or ())
    tag = tag or __version__
    if tag == "latest":
        raise CommandError(
            "--tag latest: a cluster would never know whether it has this image. Give it a name.", status=2
        )
    check_docker()
    buildx = has_buildx()
    arguments = {"VERSION": tag, "REVISION": revision()}
    if base:
        arguments["PYTHON_IMAGE"] = base
    if maven := os.environ.get(REPOSITORY_VARIABLE, ""):
        arguments[REPOSITORY_VARIABLE] = maven
    extras = {"EXTRAS": "msk"} if msk else {}
    references = []
    with tempfile.TemporaryDirectory(prefix="headrace-images-") as folder:
        handed = secrets(pip_options(), cargo_options(), Path(folder))
        for image in selected:
            began = time.monotonic()
            reference = image.reference(tag, registry)
            given = {**arguments, **({} if image.name == "lake" else extras)}  # Java has a library of its own
            if "SERVICE" in image.arguments and not native:
                given["NATIVE"] = "off"
            run(build_command(image, reference, given, handed, buildx=buildx), Path(folder) / "build.log")
            references.append(reference)
            took = time.monotonic() - began
            console.line(image.name, "good", f"{reference}, {console.format_size(size(reference))}, {took:.0f} s")
        loading = load_command(ImageTarget(load), references, cluster)
        if loading is not None:
            run(loading, Path(folder) / "load.log")
            console.line("load", "good", f"{load} has them")
    console.OUT.print("\n" + next_steps(load, registry, tag), markup=False)
    return 0


def next_steps(load: str, registry: str, tag: str) -> str:
    lines = []
    changed = tag != __version__
    if registry:
        lines += [
            "Push them:",
            f"  docker images --format '{{{{.Repository}}}}:{{{{.Tag}}}}' '{registry.rstrip('/')}/headrace-*:{tag}' \\",
        ]
        lines += ["    | xargs -n 1 docker push"]
    if load == ImageTarget.DOCKER and not registry:
        given = f"HEADRACE_TAG={tag} " if changed else ""
        lines += ["Next:", f"  {given}docker compose up --wait"]
    else:
        values = [f"--set image.registry={registry}"] * bool(registry)
        values += [f"--set image.tag={tag}"] * changed
        lines += [
            "Next:",
            " ".join(["  helm install headrace deploy/helm/headrace --wait", *values]),
            "  helm test headrace",
        ]
    return "\n".join(lines)
