"""A stack of stand-in services, so that tests need no Kafka and Spark for the supervisor. It runs as a process of its own.

`python standin.py FOLDER KIND…` runs the real supervisor over such services, each a line of the shell.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from headrace_cli import console
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.state import StateFolder
from headrace_cli.stack.supervisor import Part, Stack, Supervisor

KINDS = {
    "well": "exec {serve}",
    "crash": "env; echo it went wrong; exit 7",
    "config": "echo HEADRACE_X__Y: there is no such setting; exit 78",
    "family": "(trap '' TERM; exec sleep 600) & exec {serve}",
    "patient": "trap '' TERM; exec {serve}",
}
"""`serve` answers on /readyz. `patient` has ten minutes of grace."""

PATH = os.pathsep.join(filter(None, sys.path))


def headrace(*arguments: str, lines: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, with these lines as its input, but with a quick landing job."""
    return subprocess.run(
        [sys.executable, "-m", "headrace_cli", *arguments],
        env={**os.environ, "PYTHONPATH": PATH, "HEADRACE_LAKE__TRIGGER": "0.5", **variables},
        input=lines,
        capture_output=True,
        text=True,
        timeout=1800,  # above what the command line allows itself
    )


def part(state: StateFolder, name: str, kind: str, web: Path) -> Part:
    port = free_port()
    address = f"127.0.0.1:{port}"
    serve = f"{sys.executable} -m http.server {port} --bind 127.0.0.1 --directory {web}"
    return Part(
        name,
        ("sh", "-c", KINDS[kind].format(serve=serve)),
        {"HEADRACE_OWN": "1"},
        state.log(name),
        address,
        {"tcp": address},
        address,
        address,
        grace=600 if kind == "patient" else 1.5,
        without=("SPARK_HOME",),
    )


def supervise(folder: Path, kinds: list[str]) -> int:
    state = StateFolder(folder)
    state.make()
    web = folder.with_name("web")
    web.mkdir(exist_ok=True)
    (web / "readyz").touch()
    line, ready = console.unheard()(console.line), console.unheard()(lambda: print("ALL READY", flush=True))
    with state.held():
        topics = Part("topics", ("echo", "topics"), {}, state.log("topics"))
        parts = [part(state, f"{kind}{number}", kind, web) for number, kind in enumerate(kinds)]
        return asyncio.run(Supervisor(Stack(state, "127.0.0.1:1", None, topics, parts), line, ready).run())


def heeds_interrupts() -> None:
    """Make a child heed SIGINT, as under a terminal. A shell starts background processes so that they ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(supervise(Path(sys.argv[1]), sys.argv[2:]))
