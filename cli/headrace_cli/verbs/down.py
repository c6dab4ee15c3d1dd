"""``down`` stops the stack; ``purge`` deletes its state folder."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from headrace_cli.errors import CommandError
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console

STOP_SECONDS: Final = 75.0
"""Time for a supervisor to stop its stack: receivers drain for up to 35 s, the broker for up to 20 s."""


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
    pid = state.supervisor_pid()
    if pid is None:
        return  # it has just taken the lock and not yet written its pid; `end_processes` ends what it has started
    _kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while state.running():
        if time.monotonic() > deadline:
            console.line("stack", "bad", f"the supervisor (pid {pid}) did not stop in {STOP_SECONDS:.0f} s: killed")
            _kill(pid, signal.SIGKILL)
            break
        time.sleep(0.05)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise CommandError(f"The stack belongs to another user (supervisor pid {pid}).") from error


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
