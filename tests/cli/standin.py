"""A stack of stand-ins, so that the supervisor can be tested without Kafka and Spark; run as a process of its own.

`python standin.py service PORT` answers on /readyz and /livez; `python standin.py supervise FOLDER KIND…` runs the real
supervisor over such services: `well` is well, `crash` exits at once, `family` has a grandchild, `stubborn` ignores
SIGTERM, `patient` too but gets a minute, `config` refuses its settings, `sick` says on /livez that it must be restarted.
"""

from __future__ import annotations

import asyncio
import http.server
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from headrace_cli.child import Spec
from headrace_cli.console import Reporter
from headrace_cli.ports import free_port
from headrace_cli.probes import http_probe
from headrace_cli.stack import Endpoint, Stack
from headrace_cli.state import STACK_VARIABLE, StateFolder
from headrace_cli.supervisor import Supervisor


def serve(port: int, kind: str) -> None:
    if kind == "config":
        print("HEADRACE_X__Y: there is no such setting", flush=True)
        sys.exit(78)
    if kind == "crash":
        print("it went wrong", flush=True)
        sys.exit(7)
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


def spec(state: StateFolder, name: str, kind: str) -> tuple[Spec, int]:
    port = free_port()
    command = (sys.executable, __file__, "service", str(port), kind)
    environment = {STACK_VARIABLE: state.name or ""}
    return Spec(
        name,
        command,
        environment,
        state.log(name),
        http_probe("127.0.0.1", port),
        grace=60 if kind == "patient" else 1.5,
    ), port


def stack(state: StateFolder, kinds: list[str]) -> Stack:
    receivers = []
    for number, kind in enumerate(kinds):
        made, port = spec(state, f"{kind}{number}", kind)
        address = f"127.0.0.1:{port}"
        receivers.append((made, Endpoint(address, {"tcp": address}, address, "send to {listen}")))
    lake, port = spec(state, "lake", "well")
    return Stack(
        state=state,
        bootstrap="127.0.0.1:1",
        broker=None,
        kafka=None,
        topics=((sys.executable, "-c", "print('topics')"), {}),
        receivers=receivers,
        lake=lake,
        lake_ops=f"127.0.0.1:{port}",
    )


def supervise(folder: str, kinds: list[str]) -> int:
    state = StateFolder(Path(folder))
    state.make()
    held = state.lock()
    state.end_processes()
    reporter = Reporter(state.log("supervisor"))
    try:
        return asyncio.run(Supervisor(stack(state, kinds), reporter, lambda: print("ALL READY", flush=True)).run())
    finally:
        os.close(held)


def heeds_interrupts() -> None:
    """For a child about to run, as under a terminal: what a shell starts in the background ignores SIGINT, as nohup does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(condition, seconds: float = 20.0, what: str = "it"):
    """The first true value of `condition`; fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


if __name__ == "__main__":
    if sys.argv[1] == "service":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(supervise(sys.argv[2], sys.argv[3:]))
