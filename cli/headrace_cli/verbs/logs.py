"""``logs``: shows the logs of the stack's processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace_cli.ground import CommandError
from headrace_cli.machine.child import written_since
from headrace_cli.stack.state import StateFolder

_TAIL_BYTES: Final = 1024 * 1024


def logs(path: Path, names: Sequence[str], *, lines: int, follow: bool) -> int:
    """Print the last `lines` lines of each named log, or of all; with `follow` continue until interrupted."""
    state = StateFolder(path)
    there = sorted(file.stem for file in state.logs.glob("*.log")) if state.logs.is_dir() else []
    unknown = [name for name in names if name not in there]
    if unknown or not there:
        has = f"there is: {', '.join(there)}" if there else "nothing has run there yet"
        raise CommandError(f"{state.logs} has no log of {', '.join(unknown) or 'anything'}; {has}.")
    wanted = list(names) or there
    width = max(map(len, wanted))

    def show(name: str, rows: Sequence[str]) -> None:
        prefix = f"{name:<{width}} | " if len(wanted) > 1 else ""
        sys.stdout.writelines(f"{prefix}{row}\n" for row in rows)
        sys.stdout.flush()

    positions = {}
    for name in wanted:
        log = state.log(name)
        rows, positions[name] = written_since(log, max(0, log.stat().st_size - _TAIL_BYTES))
        show(name, rows[-lines:] if lines else [])
    while follow:
        time.sleep(0.2)
        for name in wanted:
            rows, positions[name] = written_since(state.log(name), positions[name])
            show(name, rows)
    return 0
