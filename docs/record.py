"""Records a session on a terminal as a picture: ``python docs/record.py [--any-port]`` writes ``pictures/session.svg``.

Everything in it was run and said so: a stack of its own, events, queries, the proof, the end. Only the lines that say what is
waited for are left out, and the state folder is called as it is by default. The picture asks no other host for anything.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent
PICTURE: Final = DOCS / "pictures" / "session.svg"
COLUMNS: Final = 108
SECONDS: Final = 1200
"""Time that each command has."""
COMMANDS: Final = (
    "up -d --services forward,lumberjack",
    "send lumberjack --rate 1000 --for 5s --connections 4 --then-check",
    'query "select stream, protocol, count(*) as events from events group by all"',
    "query --named exactly-once --format table",
    "down",
)

_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
"""Sequences that move the cursor or hide it; colours end with m."""
_WAITING: Final = re.compile(r"^(\x1b\[[0-9;]*m|\s)*stack\s+waiting for .*$")
_FONT: Final = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->\s*", re.DOTALL)


def said(text: str, state: str) -> str:
    """Returns the output of a command as the picture shows it."""
    named = _CONTROL.sub("", text).replace(f" --state {state}", "").replace(state, ".headrace").replace(f"{ROOT}/", "")
    lines = named.split("\n")
    return "\n".join(line.rpartition("\r")[2].rstrip() for line in lines if line.strip() and not _WAITING.match(line))


def drawn(session: Iterable[tuple[str, str]]) -> str:
    """The picture of commands and what each said. Raises ValueError if it would name this machine or its user's folder."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, output) in enumerate(session):
        console.print(
            Text.assemble("" if number == 0 else "\n", ("$ ", "bold green"), (f"./headrace {command}", "bold"))
        )
        console.print(Text.from_ansi(output))
    code = _COMMENT.sub("", _FONT.sub("", CONSOLE_SVG_FORMAT)).replace("Fira Code", "ui-monospace, Menlo, Consolas")
    picture = console.export_svg(title="headrace", code_format=code, unique_id="session")
    for private in (socket.gethostname(), str(Path.home()), str(ROOT), tempfile.gettempdir()):
        if len(private) > 1 and private in picture:
            raise ValueError(f"the picture would have {private} in it")
    return picture


def record(commands: Iterable[str], state: str) -> list[tuple[str, str]]:
    """Run the commands of a stack in `state`, and return what each said. Raises `subprocess.CalledProcessError`."""
    variables = {
        **os.environ, "HEADRACE_STATE": state, "FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(COLUMNS),
    }  # fmt: skip
    session = []
    for command in commands:
        arguments = [str(ROOT / "headrace"), *shlex.split(command)]
        done = subprocess.run(
            arguments, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
        session.append((command, said(done.stdout, state)))
    return session


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--any-port", action="store_true", help="the usual ports are taken: use free ones")
    first, *others = COMMANDS
    commands = [f"{first} --any-port" if parser.parse_args().any_port else first, *others]
    with tempfile.TemporaryDirectory() as folder:
        state = str(Path(folder) / "state")
        try:
            PICTURE.write_text(drawn(record(commands, state)))
        except subprocess.CalledProcessError as error:
            sys.exit(f"./headrace {error.cmd} ended with {error.returncode}:\n{error.output}")
        finally:
            down = [str(ROOT / "headrace"), "down", "--state", state]
            subprocess.run(down, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    main()
