"""``down`` stops the stack; ``purge`` deletes its state folder."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Final

import psutil

from headrace_cli.ground import CommandError
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console

STOP_SECONDS: Final = 75.0
"""Time for a supervisor to stop its stack: receivers drain for up to 35 s, the broker for up to 20 s."""

KNOWN_SECONDS: Final = 5.0
"""Time for a supervisor that has just taken the lock to say there who it is."""


def down(path: Path) -> int:
    """Stop the stack with all its processes, even if its supervisor was killed."""
    state = StateFolder(path)
    ran = state.running()
    if ran:
        _stop_supervisor(state)
    left = state.end_processes()
    state.delete_record()
    if left and not ran:
        console.line("stack", "good", f"stopped; its supervisor was gone, {left} processes were left")
    elif ran:
        console.line("stack", "good", "stopped")
    else:
        console.line("stack", "note", f"nothing runs on {state.path}")
    return 0


def _stop_supervisor(state: StateFolder) -> None:
    supervisor, deadline = state.supervisor(), time.monotonic() + KNOWN_SECONDS
    while supervisor is None and state.running():
        if time.monotonic() > deadline:
            raise CommandError(
                f"An unknown process holds {state.path / 'lock'}: it is no supervisor of this user's, and nothing was stopped."
            )
        time.sleep(0.05)
        supervisor = state.supervisor()
    if supervisor is None:
        return
    _signal(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while state.running():
        if time.monotonic() > deadline:
            console.line(
                "stack", "bad", f"the supervisor (pid {supervisor.pid}) did not stop in {STOP_SECONDS:.0f} s: killed"
            )
            _signal(supervisor, signal.SIGKILL)
            break
        time.sleep(0.05)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # nor does psutil signal another one that has its pid by now
        process.send_signal(number)


def purge(path: Path, *, yes: bool) -> int:
    """Delete the state folder, after a question to the user unless `yes`."""
    state = StateFolder(path)
    if not state.path.exists():
        console.line("state", "note", f"there is no {state.path}")
        return 0
    if state.name is None or state.running():
        state.remove()  # raises with the reason
    if not yes:
        from rich.prompt import Confirm

        try:
            agreed = Confirm.ask(f"Delete {state.path} with everything that Kafka and the lake hold?", default=False)
        except EOFError:
            agreed = False
        if not agreed:
            raise CommandError("Nothing was deleted; --yes deletes without asking.")
    state.remove()
    console.line("state", "good", f"{state.path} is gone")
    return 0
