"""``quarantine list``, ``show`` and ``export``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from headrace_reader.address import LakeAddress
from headrace_reader.text import json_value, printable, text
from rich.text import Text

from headrace_cli.ground import EXIT_FAILED, CommandError, check_known
from headrace_cli.operating.records import as_json
from headrace_cli.stack.reach import kafka_settings
from headrace_cli.verbs import console
from headrace_cli.wire.quarantined.items import Item, Wanted, gathered, of_lake, of_topic

SHOWN_BYTES: Final = 4096
"""Most bytes of an item that `show` prints as a dump."""
_WIDTH: Final = 16


@dataclass(frozen=True)
class Source:
    """Where to look: the tables in `lake`, or, if `topic`, the topic of the stack in `state` or at `kafka`."""

    state: Path
    lake: LakeAddress
    kafka: str | None = None
    topic: bool = False

    def items(self, wanted: Wanted, *, content: bool) -> Iterator[Item]:
        """Return the newest first from the lake, the oldest first from the topic. Raises `CommandError`, `DeliveryError`."""
        if self.topic or self.kafka is not None:
            return gathered(of_topic(kafka_settings(self.state, self.kafka), wanted, content=content))
        return gathered(of_lake(self.lake, wanted, content=content))

    @property
    def newest_first(self) -> bool:
        return not self.topic and self.kafka is None


def list_items(source: Source, wanted: Wanted, limit: int, *, as_lines: bool) -> int:
    """Print the newest `limit` items, the newest first. Return 0."""
    found = source.items(wanted, content=False)
    items = list(islice(found, limit)) if source.newest_first else list(reversed(deque(found, maxlen=limit)))
    if as_lines:
        for item in items:
            sys.stdout.buffer.write(as_json(item.described()) + b"\n")
        sys.stdout.flush()
        return 0
    if not items:
        console.OUT.print("Nothing is in quarantine that fits.")
        return 0
    for item in items:
        console.OUT.print(_heading(item))
        console.OUT.print(
            f"  {printable(item.source)} {printable(item.stream)}: {printable(item.detail)}", markup=False
        )
    console.ERR.print(f"{len(items)} shown; `quarantine show NAME` has the bytes")
    return 0


def _heading(item: Item) -> Text:
    shown = Text(f"{item.received_time.astimezone(UTC):%Y-%m-%d %H:%M:%S} ", style="dim")
    shown.append(printable(item.reason), style="red")
    shown.append(f" {printable(item.protocol)} {console.format_size(item.size)} ")
    shown.append(printable(item.name), style="bold")
    if not item.complete:
        shown.append(f" ({item.parts - len(item.sizes)} of {item.parts} parts are missing)", style="red")
    return shown


def show_item(source: Source, name: str, *, raw: bool) -> int:
    """Print what is known about an item and its bytes, or with `raw` the bytes alone. Return 1 if they are not all there.

    Raises `CommandError` if there is no such item.
    """
    item = next(source.items(Wanted(name=name), content=True), None)
    if item is None:
        where = "the topic" if source.topic or source.kafka is not None else source.lake
        raise CommandError(f"{where} has no {name} in quarantine; `quarantine list` shows the names.")
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
    """Return lines with the offset, 16 bytes in hex and what of them is ASCII."""
    for at in range(0, len(content), _WIDTH):
        piece = content[at : at + _WIDTH]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{at:08x}  {piece.hex(' '):<{3 * _WIDTH - 1}}  {plain}"


def export_items(source: Source, wanted: Wanted, folder: Path) -> int:
    """Write each item's bytes to ``NAME.bin`` and a line about it to ``index.jsonl`` in `folder`, which must be new or empty.

    Return 1 if an item is not whole; its line says why. Raises `CommandError`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(f"{folder} is not empty: name another folder.", status=2)
        written = broken = 0
        with (folder / "index.jsonl").open("w", encoding="utf-8") as index:
            for item in source.items(wanted, content=True):
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


def wanted_of(reasons: list[str], protocols: list[str], since: str, until: str) -> Wanted:
    """Return the options as what is wanted. Raises `CommandError` for a time that is none, or a reason or protocol that nobody
    has.
    """
    from headrace_common.protocol import installed
    from headrace_common.record.contract import Reason, RecordFault

    from headrace_cli.operating.records import parse_moment

    check_known("--reason", reasons, [*Reason, *RecordFault])
    check_known("--protocol", protocols, [each.name for each in installed()])
    now = datetime.now(UTC)
    found = Wanted(reasons, protocols)
    if since:
        found = replace(found, since=parse_moment(since, "--since", now))
    if until:
        found = replace(found, until=parse_moment(until, "--until", now))
    return found
