"""A stack of stand-in services, so that tests need no Kafka and Spark for the supervisor. It runs as a process of its own.

`python standin.py service PORT KIND` answers on /readyz. `python standin.py supervise FOLDER KIND…` runs the real supervisor
over such services: `well` works, `crash` exits at once, `family` has a child, `stubborn` ignores SIGTERM, `patient` does so too
but has ten minutes of grace, `config` refuses its settings, `slow` answers when the supervisor has said that it waits for it,
`sick` is not ready, and with `nowhere` nobody listens where Kafka should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from headrace_cli import console
from headrace_cli.machine.child import Part
from headrace_cli.machine.ports import free_port
from headrace_cli.stack import reach, supervisor
from headrace_cli.stack.reach import unreachable, unready
from headrace_cli.stack.stack import Stack
from headrace_cli.stack.state import StateFolder
from headrace_cli.stack.supervisor import Supervisor

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
        print("it went wrong", flush=True)
        sys.exit(7)
    if kind == "slow":
        while not re.search(r"waiting for .*\bslow", Path(os.environ[TOLD]).read_text()):
            time.sleep(0.05)
    if kind in ("stubborn", "patient"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "family":
        subprocess.Popen([sys.executable, "-c", "import signal,time; signal.signal(15, 1); time.sleep(600)"])

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if kind == "sick" else 200)
            self.end_headers()
            self.wfile.write(b"pump stopped\n" if kind == "sick" else b"ok\n")

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
        {},
        state.log(name),
        partial(unready, "127.0.0.1", port),
        address,
        {"tcp": address},
        address,
        grace=600 if kind == "patient" else 1.5,
    )


async def reachable(bootstrap: str) -> str:
    return await unreachable(bootstrap) or ""


def supervise(folder: str, kinds: list[str]) -> int:
    state = StateFolder(Path(folder))
    state.make()
    port = free_port()
    with state.held(), contextlib.ExitStack() as ends:
        if "nowhere" in kinds:
            kinds.remove("nowhere")
            reach.CONNECT_SECONDS = 60.0  # type: ignore[misc]  # that it is refused may be heard late
        else:  # it takes connections, which is all that is asked of it
            ends.enter_context(socket.create_server(("127.0.0.1", port)))
        if "slow" in kinds:
            supervisor.TELL_SECONDS = 0.2  # type: ignore[misc]
        bootstrap = f"127.0.0.1:{port}"
        made = (sys.executable, "-c", "print('topics')")
        topics = Part("topics", made, {}, state.log("topics"), partial(reachable, bootstrap))
        parts = [part(state, f"{kind}{number}", kind) for number, kind in enumerate(kinds)]
        stack = Stack(state, bootstrap, None, topics, parts)
        return asyncio.run(Supervisor(stack, console.unheard()(console.line), announce).run())


def announce() -> None:
    with console.unheard():
        print("ALL READY", flush=True)


def heeds_interrupts() -> None:
    """Make a child heed SIGINT, as under a terminal. A shell starts background processes so that they ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    if sys.argv[1] == "service":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        sys.exit(supervise(sys.argv[2], sys.argv[3:]))
