"""``tap``: shows what passes on the events topic, or on the quarantine topic."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer
from headrace_common.operations.variables import named_protocols

from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, check_known
from headrace_cli.options import KafkaOption, StateOption, examples

if TYPE_CHECKING:  # they import aiokafka and rich, and the help needs them not
    from headrace_common.operations.settings import KafkaSettings

    from headrace_cli.operating.records import Row, StoredRecord
    from headrace_cli.operating.topic import TopicReader

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
    stream: Annotated[str, typer.Option(metavar="PATTERN", help="Only this stream; * and ? match anything.")] = "",
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Show the quarantine topic instead: rejected input, with the reasons.")
    ] = False,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="now (the default), beginning, an ISO time, or how long ago: 10m."),
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object on each line.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on at the topic's end, or stop there.")
    ] = True,
) -> int:
    """Show what passes on the topic: decoded, filtered, live until Ctrl-C. It joins no group and changes nothing."""
    from headrace_cli.operating.records import BEGINNING, NOW, event, parse_moment, reject
    from headrace_cli.stack.reach import kafka_settings

    check_known("--protocol", protocol or (), named_protocols())
    moment: datetime | str = begin or NOW
    if moment not in (NOW, BEGINNING):
        moment = parse_moment(begin, "--from", datetime.now(UTC))

    def passes(row: Row) -> bool:
        known = not protocol or row.get("protocol") in protocol
        return known and fnmatchcase(str(row.get("stream", "")), stream or "*")

    tapping = _Tap(reject if quarantine else event, passes, as_json, limit, follow)
    try:
        asyncio.run(tapping.run(kafka_settings(state, kafka), moment, quarantine=quarantine))
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    console.ERR.print(f"{tapping.shown:,} shown of {tapping.read:,} read")
    return 0


@dataclass
class _Tap:
    """Shows records, and counts them. `limit`: of records that are shown; `follow`: go on at the topic's end."""

    decode: Callable[[StoredRecord], Row]
    passes: Callable[[Row], bool]
    as_json: bool
    limit: int | None
    follow: bool
    shown: int = 0
    read: int = 0

    async def run(self, settings: KafkaSettings, moment: datetime | str, *, quarantine: bool) -> None:
        """Show what is stored from `moment` on."""
        from headrace_cli.operating.topic import reading

        async with reading(settings, quarantine=quarantine, on_away=_say_away) as reader:
            await reader.begin_at(moment)
            if self.follow and console.ERR.is_terminal:
                console.ERR.print(f"{reader.topic} at {settings.bootstrap_servers}; Ctrl-C ends", style="dim")
            await self._show_all(reader)

    async def _show_all(self, reader: TopicReader) -> None:
        while self.follow or not await reader.at_the_end():
            for record in await reader.step():
                if self.follow or reader.before_the_end(record):
                    self.read += 1
                    if self.passes(row := self.decode(record)):
                        self._show(row)
                    if self.shown == self.limit:
                        sys.stdout.flush()
                        return
            sys.stdout.flush()
            if output_closed():
                raise BrokenPipeError

    def _show(self, row: Row) -> None:
        from headrace_cli.operating.records import as_json, pretty

        self.shown += 1
        if self.as_json:
            sys.stdout.buffer.write(as_json(row) + b"\n")
            return
        with console.OUT.capture() as captured:  # rich would end the process itself on a closed pipe
            console.OUT.print(pretty(row))
        sys.stdout.write(captured.get())


def _say_away(away: bool) -> None:
    console.ERR.print("Kafka does not answer; it goes on when it is back" if away else "Kafka answers again")


def output_closed() -> bool:
    """Return whether the reader of our standard output has gone: a quiet topic gives no write that would tell it."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, io.UnsupportedOperation):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(seen & (select.POLLERR | select.POLLHUP) for _, seen in poll.poll(0))
