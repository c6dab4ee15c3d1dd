"""``smoke``: sends one event by each protocol and finds it on the events topic. `helm test` and the compose file use it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headrace_cli.ground import EXIT_FAILED
from headrace_cli.options import CaOption

app = typer.Typer()


@app.command()
def smoke(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="PROTOCOL=HOST:PORT...", help="Receivers, for example forward=localhost:24224."),
    ],
    ca: CaOption = "",
    seconds: Annotated[float, typer.Option(min=1, help="How long to wait for each answer, and for the events.")] = 60,
) -> int:
    """Send an event by each protocol and find it on the topic. HEADRACE_KAFKA__BOOTSTRAP_SERVERS says where Kafka is."""
    from headrace_cli.stack.reach import environments_kafka
    from headrace_cli.wire.smoking import parse, try_all
    from headrace_cli.wire.target import tls_context

    kafka = environments_kafka()
    return EXIT_FAILED if asyncio.run(try_all(kafka, parse(targets, tls_context(ca)), seconds)) else 0
