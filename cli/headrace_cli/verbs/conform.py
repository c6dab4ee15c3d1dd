"""``conform``: the probes of a package beside this one."""

from __future__ import annotations

import typer

from headrace_cli.ground import PASSED, become

app = typer.Typer()


@app.command(context_settings=PASSED)
def conform(context: typer.Context) -> None:
    """Ask any server when it acknowledges, and what bad input does to it. It sends events and harmful bytes; exit status 1
    if the server breaks the promise.
    """
    become("headrace_conform", ["conform", *context.args])
