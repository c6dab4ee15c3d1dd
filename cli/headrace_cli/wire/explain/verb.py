"""``headrace explain``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from headrace_common.operations.settings import load
from headrace_common.session.explain import Part, count
from headrace_reader.text import printable
from rich.text import Text

from headrace_cli.ground import EXIT_FAILED, CommandError, check_known
from headrace_cli.operating.parts import settings_class
from headrace_cli.operating.records import as_json, shown_value
from headrace_cli.verbs import console
from headrace_cli.verbs.options import examples
from headrace_cli.wire.explain.stream import EXPLANATIONS, ExplainedBytes, ExplainedFrame, Explainer, Summary, stranger

CHUNK: Final = 64 << 10
"""Bytes that are read at once."""
_BODY: Final = 300
_PLACE: Final = "{:08x}"


app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace explain capture.bin",
        "./headrace quarantine show --raw NAME | ./headrace explain - --protocol logjam",
        "HEADRACE_LIMITS__FRAME_BYTES=64MiB ./headrace explain capture.bin",
    )
)
def explain(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", help="Bytes that a client sent on one connection; - is standard input."),
    ],
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="courier, forward, logjam, lumberjack or segment; default: the first bytes say."
        ),
    ] = "",
    parts: Annotated[int, typer.Option(min=0, max=100_000, help="Show at most N events and entries of a frame.")] = 5,
    frames: Annotated[int, typer.Option(min=0, help="Show at most N frames; all are counted.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each frame, then one with the totals.")
    ] = False,
) -> int:
    """Say what bytes mean, field by field, and what a receiver does with them. Exit status 1 if it does not understand all."""
    check_known("--protocol", [protocol] if protocol else (), EXPLANATIONS)
    explainer = Explainer(read(file), protocol, parts, lambda name: load(settings_class(name)))
    found = explainer.run(time.time_ns() // 1_000_000)
    (_print_json if as_json else _print)(explainer.summary, found, frames)
    return 0 if explainer.summary.fine else EXIT_FAILED


def read(name: str) -> Iterator[bytes]:
    """Yield a file's bytes, or those of standard input (``-``), in pieces. Raises `CommandError` if it has none."""
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            piece = file.read(CHUNK)
            if not piece.strip():
                raise CommandError(f"{name} is empty: there is nothing to explain.", status=2)
            while piece:
                yield piece
                piece = file.read(CHUNK)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}.", status=2) from error


def _print_json(summary: Summary, found: Iterable[ExplainedFrame], most: int) -> None:
    """Print a JSON object for each frame, the last one with the totals."""
    for number, each in enumerate(found):
        if number < most:
            sys.stdout.buffer.write(as_json(_described(each)) + b"\n")
    broken = {"offset": summary.broken_at, "why": summary.broken, "limit": summary.limit}
    totals = {
        "protocol": summary.protocol,
        "bytes": summary.size,
        "frames": summary.frames,
        "events": summary.events,
        "quarantine": dict(summary.quarantine),
        "replies": summary.replies,
        "broken": broken if summary.broken else None,
        "unread": summary.size - summary.broken_at if summary.broken else 0,
    }
    sys.stdout.buffer.write(as_json(totals) + b"\n")
    sys.stdout.flush()


def _described(each: ExplainedFrame) -> dict[str, Any]:
    heard = each.heard
    frame = each.unit.described() if each.unit is not None else {}
    return {
        **frame,
        "events": heard.events,
        "events_left_out": heard.stored - len(heard.events),
        "quarantine": heard.rejects,
        "quarantine_left_out": sum(heard.quarantined.values()) - len(heard.rejects),
        "replies": each.said,
    }


def _print(summary: Summary, found: Iterable[ExplainedFrame], most: int) -> None:
    console.OUT.print(summary.protocol, style="bold")
    for number, each in enumerate(found):
        if number < most:
            for line in lines(each):
                console.OUT.print(line)
    left = summary.frames - most
    if left > 0:
        console.OUT.print(f"… {count(left, 'more frame')}; --frames shows more", style="dim")
    console.OUT.print()
    for line in _conclusion(summary):
        console.OUT.print(line)


def lines(each: ExplainedFrame) -> Iterator[Text]:
    unit = each.unit
    if unit is not None:
        head = Text(_PLACE.format(unit.offset), style="cyan")
        head.append(f" {unit.kind}", style="bold")
        head.append(f" ({count(unit.size, 'byte')}): {printable(unit.meaning)}")
        yield head
        for part in unit.parts:
            yield _part(part)
        if unit.more > 0:
            yield Text(f"  … {unit.more:,} more; --parts shows more", style="dim")
    yield from _outcome(each.heard)
    for said in each.said:
        yield Text(f"  ← {printable(said)}", style="green")


def _part(part: Part) -> Text:
    place = ("+" if part.inflated else " ") + _PLACE.format(part.offset)
    shown = Text(f" {place}  ", style="cyan")
    shown.append(part.sample.hex(" ") + (" …" if 0 < len(part.sample) < part.size else ""), style="dim")
    shown.append(f"  {printable(part.meaning)}")
    return shown


def _outcome(heard: ExplainedBytes) -> Iterator[Text]:
    for event in heard.events:
        line = Text("  → event ", style="blue")
        line.append(f"{event['id']} stream {printable(event['stream'])} time {event['time']}: ", style="dim")
        content = event["payload"] if "payload" in event else event["body"]
        line.append(shown_value(content)[:_BODY])
        yield line
    left = heard.stored - len(heard.events)
    if left:
        yield Text(f"  → {count(left, 'more event')}", style="blue")
    for reject in heard.rejects:
        why = f"{reject['reason']}: {printable(reject['detail'])} ({count(reject['bytes'], 'byte')})"
        yield Text(f"  → quarantine, part {reject['part']}, {why}", style="red")
    left = sum(heard.quarantined.values()) - len(heard.rejects)
    if left:
        yield Text(f"  → {left:,} more to quarantine", style="red")


def _conclusion(summary: Summary) -> Iterator[Text]:
    yield Text(f"{count(summary.size, 'byte')}, {count(summary.frames, 'frame')}", style="bold")
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(summary.quarantine.items()))
    yield Text(
        f"A receiver with these limits stores {count(summary.events, 'event')}, puts "
        f"{f'into quarantine: {reasons}' if reasons else 'nothing into quarantine'}, and says {summary.replies:,} "
        f"{'reply' if summary.replies == 1 else 'replies'}."
    )
    if note := EXPLANATIONS[summary.protocol].note:
        yield Text(note)
    if summary.broken:
        limit = f" ({summary.limit})" if summary.limit and summary.limit not in summary.broken else ""
        sample = f"; the bytes there: {summary.sample[:16].hex(' ')}" if summary.sample else ""
        if summary.broken_at == 0 and (other := stranger(summary.sample)):
            yield Text(f"These bytes are {other}.", style="red")
        refused = summary.broken_at < summary.understood  # what is explained above, and no receiver takes
        place = f"byte {summary.broken_at:,} (0x{summary.broken_at:x}): {printable(summary.broken)}{limit}{sample}."
        yield Text(f"{'A receiver does not take what begins' if refused else 'It breaks'} at {place}", style="red")
        unread = summary.size - max(summary.understood, summary.broken_at)
        if unread:
            after = "after what is explained above" if refused else "from there on"
            yield Text(f"{count(unread, 'byte')} {after} {'is' if unread == 1 else 'are'} not read.", style="red")
