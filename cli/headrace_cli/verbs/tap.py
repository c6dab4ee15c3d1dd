"""``tap``: shows what passes on the events topic, or on the quarantine topic."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated

import typer
from headrace_common.operations.variables import named_protocols

from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, check_known
from headrace_cli.options import BEGINNING, NOW, KafkaOption, StateOption, examples, parse_moment

app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace tap --protocol forward --stream 'shop.*'",
        "./headrace tap --from 10m --json | jq 'select(.body.level == \"error\")'",
        "./headrace tap --quarantine --from 1h --no-follow",
    )
)
def tap(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    protocol: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only events that came by this protocol; may be repeated.")
    ] = None,
    stream: Annotated[str, typer.Option(metavar="PATTERN", help="Only this stream; * and ? match anything.")] = "*",
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Show the quarantine topic instead: rejected input, with the reasons.")
    ] = False,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="now, beginning, an ISO time, or how long ago: 10m."),
    ] = NOW,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object on each line.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on at the topic's end, or stop there.")
    ] = True,
) -> int:
    """Show what passes on the topic: decoded, filtered, live until Ctrl-C. It joins no group and changes nothing."""
    import orjson  # here, because the help needs none of these
    from headrace_reader.text import json_value

    from headrace_cli.operating.records import decoded, pretty
    from headrace_cli.operating.topic import reading
    from headrace_cli.stack.reach import kafka_settings

    check_known("--protocol", protocol or (), named_protocols())
    start = begin if begin in (NOW, BEGINNING) else parse_moment(begin, "--from", datetime.now(UTC))
    settings, count = kafka_settings(state, kafka), {"read": 0, "shown": 0}

    async def run() -> None:
        async with reading(settings, start, quarantine=quarantine) as reader:
            while follow or not await reader.at_the_end():
                for record in await reader.step():
                    count["read"] += 1
                    row = decoded(record)
                    if protocol and row["protocol"] not in protocol:
                        continue
                    if not fnmatchcase(str(row.get("stream", "")), stream):
                        continue
                    count["shown"] += 1
                    if as_json:
                        sys.stdout.write(orjson.dumps(json_value(row)).decode() + "\n")
                    else:
                        console.OUT.print(pretty(row))
                    if count["shown"] == limit:
                        return
                sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
    console.ERR.print(f"{count['shown']:,} shown of {count['read']:,} read")
    return 0
