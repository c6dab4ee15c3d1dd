"""``quarantine list``, ``show`` and ``export``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer
from headrace_common.protocol import installed
from headrace_common.record.contract import Reason, RecordFault
from headrace_reader.text import json_value, printable, text
from rich.text import Text

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, check_known
from headrace_cli.operating.records import as_json as json_line
from headrace_cli.operating.records import parse_moment
from headrace_cli.verbs import console
from headrace_cli.verbs.options import LakeOption, StateOption, examples
from headrace_cli.wire.quarantined.items import Item, ItemFilter, items_of

SHOWN_BYTES: Final = 4096
"""Most bytes of an item that `show` prints as a dump."""
_WIDTH: Final = 16


app = typer.Typer()
quarantine = typer.Typer(
    name="quarantine",
    help="List, show, export and replay what could not be understood and has landed. tap --quarantine shows what comes.",
    no_args_is_help=True,
)
app.add_typer(quarantine)

ReasonOption = Annotated[
    list[str] | None, typer.Option("--reason", metavar="REASON", help="Only this reason; may be repeated.")
]
ProtocolOption = Annotated[
    list[str] | None, typer.Option("--protocol", metavar="NAME", help="Only this protocol; may be repeated.")
]
SinceOption = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only from here on: an ISO time, or 10m, 1d ago.")
]
UntilOption = Annotated[str, typer.Option("--until", metavar="TIME", help="Only before this time.")]


@quarantine.command(
    "list",
    epilog=examples(
        "./headrace quarantine list --reason bad_json --since 1d",
        "./headrace quarantine list --json | jq .source",
    ),
)
def list_(
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    reason: ReasonOption = None,
    protocol: ProtocolOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most N, the newest.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")] = False,
) -> int:
    """List what is in quarantine, the newest first."""
    wanted = wanted_of(reason, protocol, since, until)
    found = list(islice(items_of(lake or state / "lake", wanted, content=False), limit))
    if as_json:
        for item in found:
            sys.stdout.buffer.write(json_line(item.described()) + b"\n")
        sys.stdout.flush()
        return 0
    if not found:
        console.OUT.print("Nothing is in quarantine that fits.")
        return 0
    for item in found:
        console.OUT.print(_heading(item))
        console.OUT.print(
            f"  {printable(item.source)} {printable(item.stream)}: {printable(item.detail)}", markup=False
        )
    console.ERR.print(f"{len(found)} shown; `quarantine show NAME` has the bytes")
    return 0


def _heading(item: Item) -> Text:
    shown = Text(f"{item.received_time.astimezone(UTC):%Y-%m-%d %H:%M:%S} ", style="dim")
    shown.append(printable(item.reason), style="red")
    shown.append(f" {printable(item.protocol)} {console.format_size(item.size)} ")
    shown.append(printable(item.name), style="bold")
    if not item.complete:
        shown.append(f" ({item.parts - len(item.sizes)} of {item.parts} parts are missing)", style="red")
    return shown


@quarantine.command(
    epilog=examples(
        "./headrace quarantine show u.0123456789abcdef0123456789abcdef",
        "./headrace quarantine show --raw NAME > bytes",
    )
)
def show(
    name: Annotated[str, typer.Argument(help="The item's name, as `list` has it.")],
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write the bytes alone, as the client sent them.")] = False,
) -> int:
    """Show one item with its bytes. Exit status 1 if a part of it is missing."""
    tables = lake or state / "lake"
    item = next(items_of(tables, ItemFilter(name=name), content=True), None)
    if item is None:
        raise CommandError(f"{tables} has no {name} in quarantine; `quarantine list` shows the names.")
    problem, content = item.problem(), item.content()
    if raw:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        table = console.table("", "~")
        for key, value in item.described().items():
            if value is not None:
                table.add_row(Text(key, style="bold"), Text(printable(text(value))))
        console.OUT.print(table, soft_wrap=False)
        console.OUT.print()
        for line in dump(content[:SHOWN_BYTES]):
            console.OUT.print(line, markup=False)
        if len(content) > SHOWN_BYTES:
            console.OUT.print(f"… {len(content) - SHOWN_BYTES:,} more bytes; --raw writes all of them", markup=False)
    if problem:
        console.ERR.print(f"{item.name}: {problem}", markup=False)
    return EXIT_FAILED if problem else 0


def dump(content: bytes) -> Iterator[str]:
    """Return lines with the offset, 16 bytes in hex, and those that are ASCII."""
    for at in range(0, len(content), _WIDTH):
        piece = content[at : at + _WIDTH]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{at:08x}  {piece.hex(' '):<{3 * _WIDTH - 1}}  {plain}"


@quarantine.command(
    epilog=examples(
        "./headrace quarantine export bad-json --reason bad_json",
        "./headrace quarantine export today --since 1d",
    )
)
def export(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    reason: ReasonOption = None,
    protocol: ProtocolOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
) -> int:
    """Write each item's bytes to a file, and index.jsonl with what is known about them."""
    wanted = wanted_of(reason, protocol, since, until)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(f"{folder} is not empty: name another folder.", status=2)
        written = broken = 0
        with (folder / "index.jsonl").open("w", encoding="utf-8") as index:
            for item in items_of(lake or state / "lake", wanted, content=True):
                problem, content = item.problem(), item.content()
                file = f"{item.name}.bin"
                if (folder / file).exists():  # the same id with other bytes
                    file = f"{item.name}-{hashlib.sha256(content).hexdigest()[:16]}.bin"
                (folder / file).write_bytes(content)
                line = {**item.described(), "file": file, **({"problem": problem} if problem else {})}
                index.write(json.dumps(json_value(line), ensure_ascii=False) + "\n")
                written, broken = written + 1, broken + bool(problem)
    except OSError as error:
        raise CommandError(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    told = f"{written:,} items in {folder}" + (f", {broken:,} not whole" if broken else "")
    console.line("export", "bad" if broken else "good", told)
    return EXIT_FAILED if broken else 0


def wanted_of(reasons: list[str] | None, protocols: list[str] | None, since: str, until: str) -> ItemFilter:
    """Return the options as conditions. Raises `CommandError` for an invalid time, or an unknown reason or protocol."""
    check_known("--reason", reasons or (), [*Reason, *RecordFault])
    check_known("--protocol", protocols or (), [each.name for each in installed()])
    now = datetime.now(UTC)
    return ItemFilter(
        reasons or (),
        protocols or (),
        parse_moment(since, "--since", now) if since else None,
        parse_moment(until, "--until", now) if until else None,
    )
