"""A stack of stand-in services, so that tests need no Kafka and Spark for the supervisor. It runs as a process of its own.

`python standin.py service PORT KIND` answers on /readyz. `python standin.py supervise FOLDER KIND…` runs the real supervisor
over such services: `well` works, `crash` says its environment and exits at once, `family` has a child, `patient` ignores SIGTERM
and has ten minutes of grace, `config` refuses its settings, `slow` answers when the supervisor has said that it waits for it.
"""

from __future__ import annotations

import asyncio
import http.server
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from headrace_cli import console
from headrace_cli.machine.ports import free_port
from headrace_cli.stack import supervisor
from headrace_cli.stack.state import StateFolder
from headrace_cli.stack.supervisor import Part, Stack, Supervisor

TOLD = "STANDIN_TOLD"
"""The variable that names the file with what the supervisor says."""

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


def serve(port: int, kind: str) -> None:
    if kind == "config":
        print("HEADRACE_X__Y: there is no such setting", flush=True)
        sys.exit(78)
    if kind == "crash":
        print(*sorted(os.environ), "it went wrong", sep="\n", flush=True)
        sys.exit(7)
    if kind == "slow":
        while not re.search(r"waiting for .*\bslow", Path(os.environ[TOLD]).read_text()):
            time.sleep(0.05)
    if kind == "patient":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "family":
        subprocess.Popen([sys.executable, "-c", "import signal,time; signal.signal(15, 1); time.sleep(600)"])

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    print(f"serving {port}", flush=True)
    http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()


def part(state: StateFolder, name: str, kind: str) -> Part:
    port = free_port()
    address = f"127.0.0.1:{port}"
    return Part(
        name,
        (sys.executable, __file__, "service", str(port), kind),
        {"HEADRACE_OWN": "1"},
        state.log(name),
        address,
        {"tcp": address},
        address,
        address,
        grace=600 if kind == "patient" else 1.5,
        without=("SPARK_HOME",),
    )


def supervise(folder: str, kinds: list[str]) -> int:
    state = StateFolder(Path(folder))
    state.make()
    with state.held():
        if "slow" in kinds:
            supervisor.TELL_SECONDS = 0.2  # type: ignore[misc]
        topics = Part("topics", (sys.executable, "-c", "print('topics')"), {}, state.log("topics"))
        parts = [part(state, f"{kind}{number}", kind) for number, kind in enumerate(kinds)]
        stack = Stack(state, "127.0.0.1:1", None, topics, parts)
        return asyncio.run(
            Supervisor(
                stack, console.unheard()(console.line), console.unheard()(lambda: print("ALL READY", flush=True))
            ).run()
        )


def heeds_interrupts() -> None:
    """Make a child heed SIGINT, as under a terminal. A shell starts background processes so that they ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    if sys.argv[1] == "service":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        sys.exit(supervise(sys.argv[2], sys.argv[3:]))
