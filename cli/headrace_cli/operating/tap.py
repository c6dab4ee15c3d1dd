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
from typing import TYPE_CHECKING, Annotated, Final

import typer
from headrace_common.operations.variables import named_protocols

from headrace_cli.ground import DEFAULT_STATE, CommandError, check_known
from headrace_cli.operating.records import (
    BEGINNING,
    NOW,
    Filters,
    Row,
    StoredRecord,
    event,
    parse_moment,
    pretty,
    reject,
)
from headrace_cli.operating.records import as_json as json_line
from headrace_cli.verbs import console
from headrace_cli.verbs.options import KafkaOption, StateOption, examples

if TYPE_CHECKING:  # they import aiokafka, and the help needs it not
    from headrace_common.operations.settings import KafkaSettings

    from headrace_cli.operating.topic import TopicReader

LAST_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of records that `--last` holds."""


app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace tap --protocol forward --stream 'shop.*'",
        "./headrace tap --from 10m --json | jq 'select(.body.level == \"error\")'",
        "./headrace tap --quarantine --last 20",
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
    last: Annotated[int | None, typer.Option(min=1, max=10_000, help="The last N that are there, and no more.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object on each line.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on at the topic's end, or stop there.")
    ] = True,
) -> int:
    """Show what passes on the topic: decoded, filtered, live until Ctrl-C. It joins no group and changes nothing."""
    from headrace_cli.stack.reach import kafka_settings

    check_known("--protocol", protocol or (), named_protocols())
    if last is not None and (begin == NOW or limit is not None):
        raise CommandError("--last counts back from the end: leave out --from now and --limit.", status=2)
    filters = Filters(protocol or (), stream)
    moment: datetime | str | None = begin or (NOW if last is None else BEGINNING if filters else None)
    if moment not in (None, NOW, BEGINNING):
        moment = parse_moment(begin, "--from", datetime.now(UTC))
    tapping = _Tap(reject if quarantine else event, filters, as_json, limit, follow)
    try:
        asyncio.run(tapping.run(kafka_settings(state, kafka), moment, last, quarantine=quarantine))
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
    filters: Filters
    as_json: bool
    limit: int | None
    follow: bool
    shown: int = 0
    read: int = 0

    async def run(
        self, settings: KafkaSettings, moment: datetime | str | None, last: int | None, *, quarantine: bool
    ) -> None:
        """Show what is stored from `moment` on, or the `last` records; without a moment, little more than these is read."""
        from headrace_cli.operating.topic import reading

        async with reading(settings, quarantine=quarantine, on_away=_say_away) as reader:
            if moment is not None:
                await reader.begin_at(moment)
            if last is not None:
                await self._show_last(reader, last, begun=moment is not None)
                return
            if self.follow and console.ERR.is_terminal:
                console.ERR.print(f"{reader.topic} at {settings.bootstrap_servers}; Ctrl-C ends", style="dim")
            await self._show_all(reader)

    async def _show_all(self, reader: TopicReader) -> None:
        while self.follow or not await reader.at_the_end():
            for record in await reader.step():
                if not self.follow and not reader.before_the_end(record):
                    continue
                row = self._wanted(record)
                if row is not None:
                    self._show(row)
                    if self.shown == self.limit:
                        sys.stdout.flush()
                        return
            sys.stdout.flush()
            if output_closed():
                raise BrokenPipeError

    async def _show_last(self, reader: TopicReader, count: int, *, begun: bool) -> None:
        def wanted(record: StoredRecord) -> bool:
            return self._wanted(record) is not None

        from headrace_cli.operating.topic import newest, newest_of_last

        if begun:
            found = await newest(reader, count, wanted, LAST_BYTES)
        else:
            found = await newest_of_last(reader, count, count, wanted, LAST_BYTES)
        if found.cut:
            raise CommandError(
                f"--last {count}: these records hold more than {console.format_size(LAST_BYTES)}; ask for fewer."
            )
        for record in found.records:
            self._show(self.decode(record))
        sys.stdout.flush()

    def _wanted(self, record: StoredRecord) -> Row | None:
        self.read += 1
        row = self.decode(record)
        return row if self.filters.passes(row) else None

    def _show(self, row: Row) -> None:
        self.shown += 1
        if self.as_json:
            sys.stdout.buffer.write(json_line(row) + b"\n")
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
