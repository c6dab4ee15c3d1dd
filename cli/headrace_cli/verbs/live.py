"""``live``: the page of a package beside this one."""

from __future__ import annotations

import typer

from headrace_cli.ground import PASSED, become

app = typer.Typer()


@app.command(context_settings=PASSED)
def live(context: typer.Context) -> None:
    """Serve the live page: what the services do, each second, in a browser. It reads, and changes nothing."""
    become("headrace_live", ["live", *context.args])
