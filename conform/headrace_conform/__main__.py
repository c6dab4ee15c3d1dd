"""``headrace conform``: the probes, in the order in which they are asked, and their table."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, check_known, run
from headrace_cli.options import CaOption, StateOption, examples
from headrace_cli.wire.target import ASKED, target_of, why_not
from headrace_reader.text import printable
from rich.text import Text

from headrace_conform import probes
from headrace_conform.bench import Bench, Finding, Probe, StorageSwitch, Verdict

_COLORS: Final = {Verdict.KEPT: "green", Verdict.BROKEN: "red", Verdict.NOTED: "yellow", Verdict.NOT_ASKED: "dim"}

_LUMBERJACK: Final = frozenset({"lumberjack"})
PROBES: Final = (
    Probe("acknowledges", "How soon does it acknowledge?", probes.acknowledges),
    Probe("before-storage", "Does it acknowledge before it stores?", probes.before_storage, held=True),
    Probe("version-1", "Does it keep clients of version 1 alive?", probes.version_one, _LUMBERJACK, held=True),
    Probe("half-closed", "Does a client that has finished sending still hear?", probes.half_closed, held=True),
    Probe("gone", "What if the client goes away with a frame in flight?", probes.gone, held=True, risky=True),
    Probe("in-flight", "Does it take several frames at once?", probes.in_flight),
    Probe("resend", "Does it acknowledge what it has already?", probes.resend),
    Probe("large-frame", "How large may a frame be?", probes.large_frame, risky=True),
    Probe("half-frame", "What does half a frame do?", probes.half_frame, risky=True),
    Probe("malformed", "What do bytes do with which no frame begins?", probes.malformed, risky=True),
    Probe("bad-event", "What does one event do that is not understood?", probes.faulty, risky=True),
    Probe("no-frame", "What do connections do that say nothing?", probes.no_frame, risky=True),
    Probe("bomb", "What does a compressed frame do that inflates a thousandfold?", probes.bomb, risky=True),
)
"""Each is asked of servers of its `protocols`. The bomb is the last: a server that breaks by it stays broken."""


Asked = tuple[Probe, Finding]


def _exit(status: int, **_: object) -> None:
    raise typer.Exit(status)


app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False, result_callback=_exit
)


@app.callback()
def _main() -> None:
    """Ask a server."""


@app.command(
    epilog=examples(
        "./headrace conform --protocol lumberjack",
        "./headrace conform logs.example.org:24224 --protocol forward --ca ca.pem --json",
        "./headrace conform --protocol lumberjack --hold-command 'kill -STOP 4711' --release-command 'kill -CONT 4711'",
    )
)
def conform(
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A server; default: the stack in --state.")] = "",
    protocol: Annotated[str, typer.Option(metavar="NAME", help="courier, forward or lumberjack.")] = "",
    state: StateOption = DEFAULT_STATE,
    ca: CaOption = "",
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3600, help="Time that the server has for each answer.")
    ] = 10,
    silence: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, max=3600, help="How long to listen where it should say nothing."),
    ] = 6,
    hold: Annotated[
        str, typer.Option("--hold-command", metavar="CMD", help="Stalls the server's storage, for the shell.")
    ] = "",
    release: Annotated[str, typer.Option("--release-command", metavar="CMD", help="Lets it go again.")] = "",
    largest: Annotated[int, typer.Option(metavar="MIB", min=1, max=1024, help="Largest frame that is tried.")] = 4,
    inflated: Annotated[
        int, typer.Option(metavar="MIB", min=1, max=4096, help="What the compressed frame inflates to.")
    ] = 100,
    only: Annotated[list[str] | None, typer.Option(metavar="PROBE", help="Only this probe; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> int:
    """Ask any server when it acknowledges, and what bad input does to it. It sends events and harmful bytes; exit status 1
    if the server breaks the promise.
    """
    check_known("--protocol", [protocol or "NAME"], sorted(ASKED))
    if bool(hold) != bool(release):
        raise CommandError("--hold-command and --release-command go together: name both.", status=2)
    probes = [probe for probe in PROBES if protocol in probe.protocols]
    check_known("--only", only or (), [probe.name for probe in probes])
    probes = [probe for probe in probes if not only or probe.name in only]
    storage = StorageSwitch(hold, release) if hold else None
    bench = Bench(target_of(protocol, state, target, ca), wait, silence, storage, largest << 20, inflated << 20)
    asked = asyncio.run(_run(bench, probes))
    if as_json:
        sys.stdout.write(json.dumps(_described(bench, asked), indent=1) + "\n")
    else:
        _print(bench, asked)
    return EXIT_FAILED if any(finding.verdict is Verdict.BROKEN for _, finding in asked) else 0


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
        asked.append((probe, await _ask(bench, probe)))
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
        "broken": [probe.name for probe, finding in asked if finding.verdict is Verdict.BROKEN],
        "probes": [
            {
                "name": probe.name,
                "question": probe.question,
                "verdict": finding.verdict.value,
                "answer": finding.answer,
                **({"figures": finding.figures} if finding.figures else {}),
            }
            for probe, finding in asked
        ],
    }


def _print(bench: Bench, asked: Sequence[Asked]) -> None:
    table = console.table("probe", "", f"~{bench.target.protocol} at {bench.target.address}")
    for probe, finding in asked:
        style = _COLORS[finding.verdict]
        table.add_row(probe.name, Text(finding.verdict.value, style), Text(printable(finding.answer)))
    console.OUT.print(table, soft_wrap=False)
    broken = sum(finding.verdict is Verdict.BROKEN for _, finding in asked)
    told = f"{broken} broken" if broken else "nothing broken"
    console.ERR.print(f"{len(asked)} probes over {bench.connections} connections: {told}", markup=False)


if __name__ == "__main__":
    run(app)
