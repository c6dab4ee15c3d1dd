"""``validate``: settings, certificates, Kafka and the topics, before anything starts."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace_cli.ground import check_known
from headrace_cli.options import examples

app = typer.Typer()


@app.command(
    epilog=examples("./headrace validate", "./headrace validate forward lake", "./headrace validate --offline")
)
def validate(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="forward, lake, topics, …; default: all parts.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask Kafka.")] = False,
) -> int:
    """Check settings, certificates, Kafka and its topics before anything starts. Exit status 78 if one is wrong."""
    from headrace_common.operations.errors import EXIT_CONFIG

    from headrace_cli import console
    from headrace_cli.operating.validity import NAMES, findings

    check_known("part", parts or (), NAMES)
    found = list(dict.fromkeys(findings(parts or NAMES, offline=offline)))
    for check, ok, reason in found:
        console.line(check, "good" if ok else "bad", reason)
    wrong, doubts = (sum(ok is which for _, ok, _ in found) for which in (False, None))
    verdict = f"{wrong} to mend" if wrong else "valid" + (f", {doubts} in doubt" if doubts else "")
    console.OUT.print(verdict, style="bold red" if wrong else "bold green", markup=False)
    return EXIT_CONFIG if wrong else 0
