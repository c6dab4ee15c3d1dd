"""``headrace conform``: the probes, in the order in which they are asked, and their table."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace_reader.text import printable
from rich.text import Text

from headrace_cli.ground import EXIT_FAILED, CommandError, check_known
from headrace_cli.verbs import console
from headrace_cli.wire.conform import probes
from headrace_cli.wire.conform.bench import Bench, Finding, Probe, Storage, Verdict
from headrace_cli.wire.target import ASKED, Security, target_of, why_not

FORMATS: Final = ("table", "json")
_COLORS: Final = {Verdict.KEPT: "green", Verdict.BROKEN: "red", Verdict.NOTED: "yellow", Verdict.NOT_ASKED: "dim"}

_LUMBERJACK: Final = frozenset({"lumberjack"})
_FORWARD: Final = frozenset({"forward"})
_COUNTED: Final = frozenset({"lumberjack", "courier"})
PROBES: Final = (
    Probe("acknowledges", "How soon does it acknowledge?", probes.acknowledges),
    Probe("before-storage", "Does it acknowledge before it stores?", probes.before_storage, held=True),
    Probe("version-1", "Does it keep clients of version 1 alive?", probes.version_one, _LUMBERJACK, held=True),
    Probe("half-closed", "Does a client that has finished sending still hear?", probes.half_closed, held=True),
    Probe("gone", "What if the client goes away with a frame in flight?", probes.gone, held=True, risky=True),
    Probe("forms", "Which forms of a frame does it take?", probes.forms),
    Probe("partial", "Does it say how far it is?", probes.partial, _COUNTED),
    Probe("in-flight", "Does it take several frames at once?", probes.in_flight),
    Probe("resend", "Does it acknowledge what it has already?", probes.resend),
    Probe("half-close", "Does it answer a client that has finished sending?", probes.half_close),
    Probe("empty-frame", "What does it say to a frame without events?", probes.empty_frame),
    Probe("no-chunk", "What does it do without a chunk?", probes.no_chunk, _FORWARD),
    Probe("large-frame", "How large may a frame be?", probes.large_frame, risky=True),
    Probe("large-event", "How large may an event be?", probes.large_event, risky=True),
    Probe("late-byte", "Does it wait for a frame's end?", probes.late_byte),
    Probe("half-frame", "What does half a frame do?", probes.half_frame, risky=True),
    Probe("malformed", "What do bytes do with which no frame begins?", probes.malformed, risky=True),
    Probe("unknown", "What does a message do that nobody knows?", probes.unknown, risky=True),
    Probe("bad-event", "What does one event do that is not understood?", probes.faulty, risky=True),
    Probe("overfull", "What do more events do than a window announces?", probes.overfull, _LUMBERJACK, risky=True),
    Probe("bomb", "What does a compressed frame do that inflates a thousandfold?", probes.bomb, risky=True),
    Probe("no-frame", "What do connections do that say nothing?", probes.no_frame, risky=True),
)
"""Each is asked of servers of its `protocols`. docs/conformance.md says what each sends, and how the answer is judged."""


@dataclass(frozen=True)
class ConformOptions:
    """`wait`, `silence`: seconds, and `largest`, `inflated`: bytes, see `Bench`.

    `hold`, `release`: commands for the shell. `only`: names of probes; all if empty.
    """

    target: str = ""
    ca: str = ""
    wait: float = 10.0
    silence: float = 6.0
    hold: str = ""
    release: str = ""
    largest: int = 4 << 20
    inflated: int = 100 << 20
    only: Sequence[str] = ()
    style: str = "table"


@dataclass(frozen=True)
class Asked:
    """A probe, what it found, and how long that took, in seconds."""

    probe: Probe
    finding: Finding
    seconds: float


def conform(protocol: str, state: Path, options: ConformOptions) -> int:
    """Ask a server every probe, print the table, and return 1 if one finds something broken, else 0.

    Raises `CommandError` for what makes no sense, and if the server takes no connection or a command fails.
    """
    probes = chosen(protocol, options)
    target = target_of(protocol, state, options.target, Security(options.ca))
    storage = Storage(options.hold, options.release) if options.hold else None
    bench = Bench(target, options.wait, options.silence, storage, options.largest, options.inflated)
    asked = asyncio.run(_run(bench, probes))
    if options.style == "json":
        sys.stdout.write(json.dumps(_described(bench, asked), indent=1) + "\n")
    else:
        _print(bench, asked)
    return EXIT_FAILED if any(each.finding.verdict is Verdict.BROKEN for each in asked) else 0


def chosen(protocol: str, options: ConformOptions) -> list[Probe]:
    """Return the probes of a run. Raises `CommandError`."""
    check_known("--protocol", [protocol or "NAME"], sorted(ASKED))
    check_known("--format", [options.style], FORMATS)
    if bool(options.hold) != bool(options.release):
        raise CommandError("--hold-command and --release-command: what is held must be released, name both.", status=2)
    known = [probe for probe in PROBES if protocol in probe.protocols]
    check_known("--only", options.only, [probe.name for probe in known])
    return [probe for probe in known if not options.only or probe.name in options.only]


async def _run(bench: Bench, probes: Sequence[Probe]) -> list[Asked]:
    try:
        async with bench.line():
            pass
    except (OSError, TimeoutError) as error:
        raise CommandError(f"{why_not(bench.target, error, bench.wait)}.") from error
    asked = []
    for number, probe in enumerate(probes, 1):
        if console.ERR.is_terminal:
            console.ERR.print(f"{number} of {len(probes)}: {probe.name} …", end="\r", markup=False)
        began = time.monotonic()
        finding = await _ask(bench, probe)
        asked.append(Asked(probe, finding, time.monotonic() - began))
        if console.ERR.is_terminal:
            console.ERR.print(" " * 60, end="\r")
    return asked


async def _ask(bench: Bench, probe: Probe) -> Finding:
    if probe.held and bench.storage is None:
        return Finding(Verdict.NOT_ASKED, "needs --hold-command and --release-command")
    try:
        finding = await probe.ask(bench)
    except (OSError, TimeoutError) as error:
        return Finding(Verdict.BROKEN, f"takes no connection any more: {why_not(bench.target, error, bench.wait)}")
    if probe.risky and (problem := await bench.alive()):
        return Finding(Verdict.BROKEN, f"{finding.answer}; afterwards a new client hears: {problem}", finding.figures)
    return finding


def _described(bench: Bench, asked: Sequence[Asked]) -> dict[str, Any]:
    return {
        "target": bench.target.address,
        "protocol": bench.target.protocol,
        "run": bench.run,
        "connections": bench.connections,
        "broken": [each.probe.name for each in asked if each.finding.verdict is Verdict.BROKEN],
        "probes": [
            {
                "name": each.probe.name,
                "question": each.probe.question,
                "verdict": each.finding.verdict.value,
                "answer": each.finding.answer,
                "seconds": round(each.seconds, 3),
                **({"figures": each.finding.figures} if each.finding.figures else {}),
            }
            for each in asked
        ],
    }


def _print(bench: Bench, asked: Sequence[Asked]) -> None:
    table = console.table("probe", "", f"~{bench.target.protocol} at {bench.target.address}")
    for each in asked:
        style = _COLORS[each.finding.verdict]
        table.add_row(each.probe.name, Text(each.finding.verdict.value, style), Text(printable(each.finding.answer)))
    console.OUT.print(table, soft_wrap=False)
    broken = sum(each.finding.verdict is Verdict.BROKEN for each in asked)
    told = f"{broken} broken" if broken else "nothing broken"
    console.ERR.print(f"{len(asked)} probes over {bench.connections} connections: {told}", markup=False)
