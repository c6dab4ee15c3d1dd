"""``status``: shows the stack that runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Final

import typer
from headrace_reader.text import printable
from rich.text import Text

from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, EXIT_NOTHING_RUNS
from headrace_cli.options import StateOption
from headrace_cli.stack.state import StateFolder

app = typer.Typer()

SOURCES: Final = 3
"""Sources that are shown, at most."""


@app.command()
def status(
    state: StateOption = DEFAULT_STATE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> int:
    """Show what runs. Exit status 3 when nothing runs."""
    folder = StateFolder(state)
    record = folder.what_runs()
    if as_json:
        print(json.dumps(record, indent=1))
    elif not record:
        told = f"a stack is starting on {folder.path}" if folder.running() else f"nothing runs on {folder.path}"
        if not folder.running() and folder.record.exists():
            told += "; the last run was killed"
        console.line("stack", "note", told)
    if as_json or not record:
        return 0 if record else EXIT_NOTHING_RUNS
    from headrace_cli.stack.reach import not_ready  # here, because the help needs no Kafka

    table = console.table("", "~state", "~address", "health and metrics", "pid")
    for name, part in record["parts"].items():
        problem = asyncio.run(not_ready(part["ready"], part["address"]))
        addresses = " ".join(part["listeners"].values()) or part["address"]
        ops = f"http://{part['ops']}/" if part["ops"] else ""
        state_of_part = Text(problem or "ready", style="red" if problem else "green")
        table.add_row(name, state_of_part, addresses, ops, str(part["pid"] or ""))
    console.OUT.print(table)
    asyncio.run(_say_who_sends(state))
    console.OUT.print(f"The logs are in {folder.logs}, the supervisor has pid {record['supervisor_pid']}", markup=False)
    return 0


async def _say_who_sends(state: Path) -> None:
    """Print the sources that sent most in the last minute."""
    from headrace_cli.operating.exposition import Scraper, busiest, parts_of  # here, because the help needs no HTTP

    scraper = Scraper()
    try:
        found = busiest(await scraper.look(await parts_of(state, ())))
    finally:
        await scraper.close()
    for each in found[:SOURCES]:
        who, size = f"{each.service} from {printable(each.source)}", console.format_size(each.bytes)
        console.OUT.print(f"In the last minute {who}: {each.events:,} events, {size}", markup=False)
