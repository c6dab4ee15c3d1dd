"""``headrace conform``: asks a server, and prints each answer when it comes."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer
from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, check_known
from headrace_cli.options import CaOption, StateOption, examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace conform --protocol lumberjack",
        "./headrace conform logs.example.org:24224 --protocol forward --ca ca.pem --json",
        "./headrace conform --protocol lumberjack --hold-command 'kill -STOP 4711' --release-command 'kill -CONT 4711'",
    )
)
def conform(
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A server; default: the stack in --state.")] = "",
    protocol: Annotated[str, typer.Option(metavar="NAME", help="courier, forward, lumberjack or relp.")] = "",
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
    from headrace_cli import console
    from headrace_cli.wire.target import ASKED, target_of
    from headrace_reader.text import printable

    from headrace_conform.bench import Bench, Finding, Probe, StorageSwitch, Verdict, ask
    from headrace_conform.probes import PROBES

    check_known("--protocol", [protocol or "NAME"], sorted(ASKED))
    if bool(hold) != bool(release):
        raise CommandError("--hold-command and --release-command go together: name both.", status=2)
    probes = [probe for probe in PROBES if protocol in probe.protocols]
    check_known("--only", only or (), [probe.name for probe in probes])
    probes = [probe for probe in probes if not only or probe.name in only]
    storage = StorageSwitch(hold, release) if hold else None
    bench = Bench(target_of(protocol, state, target, ca), wait, silence, storage, largest << 20, inflated << 20)

    def told(probe: Probe, finding: Finding) -> None:
        if not as_json:
            line = f"{probe.name:<14}  {finding.verdict:<9}  {printable(finding.answer)}"
            console.OUT.print(line, style="red" if finding.verdict is Verdict.BROKEN else "", markup=False)

    asked = asyncio.run(ask(bench, probes, told))
    broken = [probe.name for probe, finding in asked if finding.verdict is Verdict.BROKEN]
    if as_json:
        answers = [
            {"name": probe.name, "question": probe.question, "verdict": finding.verdict, "answer": finding.answer}
            for probe, finding in asked
        ]
        place = {"target": bench.target.address, "protocol": protocol, "run": bench.run}
        print(json.dumps({**place, "broken": broken, "probes": answers}, indent=1))
    else:
        print(f"{len(asked)} probes: {len(broken) or 'nothing'} broken")
    return EXIT_FAILED if broken else 0
