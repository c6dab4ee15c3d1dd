"""``demo``: starts a stack, sends events over a real protocol, and finds them in the lake."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headrace_cli.ground import EXIT_FAILED

CONNECTIONS: Final = 4
SAMPLE: Final = (
    "select event_time, stream, coalesce(body, try(decode(payload))) as body from events order by all limit 5"
)
JAVA: Final = "-XX:TieredStopAtLevel=1"
"""A demo is mostly starting: a fifth of Spark's CPU would go into optimising code that does not run long."""
NEXT: Final = """
Next, use your own clients:

  ./headrace up                           # starts the stack; Ctrl-C stops it
  ./headrace snippet                      # lists the clients whose configuration it prints
  ./headrace query --named exactly-once   # proves what has landed"""

app = typer.Typer()


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many events to send.")] = 10_000,
    protocol: Annotated[str, typer.Option(help="What to send with; a wrong name is answered with all.")] = "forward",
) -> int:
    """Start a stack, send events through it and find them all in the lake."""
    from headrace_cli import console
    from headrace_cli.verbs import query
    from headrace_cli.verbs.check_loss import landed_and_checked
    from headrace_cli.wire.sending import sent
    from headrace_cli.wire.source import ShopSource
    from headrace_cli.wire.target import client_of, target_of

    client_of(protocol)
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        with _stack(folder / "state") as record:
            tally = sent(target_of(protocol, folder / "state", ""), ShopSource(events), CONNECTIONS)
            status = landed_and_checked(tally, folder / "state")
            query.query(SAMPLE, lake=record["lake"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    status = status if tally.fine else EXIT_FAILED
    console.line("demo", "bad" if status else "good", f"{time.monotonic() - began:.0f} s")
    if not status:
        print(NEXT)
    return status


@contextmanager
def _stack(path: Path) -> Iterator[dict[str, Any]]:
    """Run a stack on free ports. It ends with the block, and also when this process is killed."""
    from headrace_common.operations.settings import environment, own_environment

    from headrace_cli import console
    from headrace_cli.machine.jars import REPOSITORY_VARIABLE
    from headrace_cli.stack.state import StateFolder
    from headrace_cli.verbs.down import down
    from headrace_cli.verbs.up import start

    state = StateFolder(path)
    others = own_environment().keys() - {REPOSITORY_VARIABLE}  # settings of another stack
    kept = {name: value for name, value in os.environ.items() if name not in others}
    kept["JDK_JAVA_OPTIONS"] = f"{JAVA} {kept.get('JDK_JAVA_OPTIONS', '')}".rstrip()
    try:
        yield start(state, ["--any-port", "--no-live"], tied=True, variables=kept | environment("lake", trigger=0.5))
    except Exception:
        for log in sorted(state.logs.glob("*.log")):  # before the folder is deleted
            for row in log.read_text(errors="replace").splitlines()[-8:]:
                console.ERR.print(f"{log.stem:<10} | {row}", markup=False)
        raise
    finally:
        console.line("stack", "note", "stopping")
        down(state.path)
