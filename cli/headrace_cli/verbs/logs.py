"""``logs``: shows the logs of the stack's processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headrace_cli.ground import CommandError
from headrace_cli.stack.state import StateFolder

_TAIL_BYTES = 1024 * 1024


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
    positions = {name: _show(state.log(name), name, width, lines, several=len(wanted) > 1) for name in wanted}
    while follow:
        time.sleep(0.2)
        for name in wanted:
            positions[name] = _more(state.log(name), positions[name], name, width, several=len(wanted) > 1)
    return 0


def _show(log: Path, name: str, width: int, lines: int, *, several: bool) -> int:
    with log.open("rb") as source:
        source.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = source.read()
        position = source.tell()
    kept = text.splitlines()[-lines:] if lines else []
    _print(kept, name, width, several=several)
    return position


def _more(log: Path, position: int, name: str, width: int, *, several: bool) -> int:
    """Print what was written since `position`; return the new position. A log that became shorter is read from its start."""
    with log.open("rb") as source:
        if log.stat().st_size < position:
            position = 0
        source.seek(position)
        text = source.read()
    whole = text[: text.rfind(b"\n") + 1]
    _print(whole.splitlines(), name, width, several=several)
    return position + len(whole)


def _print(rows: Sequence[bytes], name: str, width: int, *, several: bool) -> None:
    prefix = f"{name:<{width}} | " if several else ""
    for row in rows:
        sys.stdout.write(f"{prefix}{row.decode(errors='replace')}\n")
    sys.stdout.flush()
