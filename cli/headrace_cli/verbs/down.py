"""``down``: stops the stack that runs."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import psutil
import typer

from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, CommandError
from headrace_cli.options import StateOption
from headrace_cli.stack.state import StateFolder

app = typer.Typer()


@app.command()
def down(
    state: StateOption = DEFAULT_STATE,
    purge: Annotated[
        bool, typer.Option("--purge", help="Then delete the state folder with the topics, the lake and the logs.")
    ] = False,
) -> int:
    """Stop the stack: the receivers acknowledge what they have taken, then Kafka stops. The data stays, without --purge."""
    folder = StateFolder(state)
    if folder.running():
        _stop(folder)
        console.line("stack", "good", "stopped")
    else:
        console.line("stack", "note", f"nothing runs on {folder.path}")
    folder.record.unlink(missing_ok=True)
    if purge and folder.path.exists():
        folder.remove()
        console.line("state", "good", f"{folder.path} is gone")
    return 0


def _stop(state: StateFolder) -> None:
    supervisor = state.supervisor()
    if supervisor is None:
        raise CommandError(f"An unknown process holds {state.path / 'lock'}: nothing was stopped.")
    with suppress(psutil.NoSuchProcess):  # nor does psutil signal another one that has its pid by now
        seconds = state.what_runs().get("stop_seconds", 90.0)
        supervisor.terminate()
        deadline = time.monotonic() + seconds
        while state.running() and time.monotonic() < deadline:
            time.sleep(0.05)
        if state.running():
            console.line("stack", "bad", f"its supervisor did not stop in {seconds:.0f} s: killed")
            supervisor.kill()
