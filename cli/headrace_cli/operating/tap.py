"""``tap``: shows what passes on the events topic, or on the quarantine topic."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from headrace_cli.ground import CommandError
from headrace_cli.operating.records import (
    BEGINNING,
    NO_FILTERS,
    NOW,
    Filters,
    Kept,
    Row,
    as_json,
    event,
    parse_moment,
    pretty,
    reject,
)
from headrace_cli.operating.topic import TopicReader, newest, reading
from headrace_cli.stack.reach import kafka_settings
from headrace_cli.verbs import console

LAST_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of records that `--last` holds."""


class Format(StrEnum):
    PRETTY = "pretty"
    JSON = "json"
    RAW = "raw"


@dataclass(frozen=True)
class TapOptions:
    """The options of `tap`. `begin`: as given, empty if it is not. `follow`: go on at the topic's end."""

    filters: Filters = NO_FILTERS
    quarantine: bool = False
    begin: str = ""
    last: int | None = None
    limit: int | None = None
    format: Format = Format.PRETTY
    follow: bool = True


def tap(path: Path, kafka: str | None, options: TapOptions) -> int:
    """Show records until the limit, the end, or Ctrl-C. Return 0.

    Raises `CommandError` (options that contradict each other, no Kafka), `ConfigError`, `DeliveryError`.
    """
    moment: datetime | str = options.begin or (BEGINNING if options.last else NOW)
    if moment not in (NOW, BEGINNING):
        moment = parse_moment(str(moment), "--from", datetime.now(UTC))
    if options.last is not None and (options.begin == NOW or options.limit is not None):
        raise CommandError("--last counts back from the end: leave out --from now and --limit.", status=2)
    tapping = _Tap(options)
    try:
        asyncio.run(tapping.run(path, kafka, moment))
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    console.ERR.print(f"{tapping.shown:,} shown of {tapping.read:,} read")
    return 0


class _Tap:
    def __init__(self, options: TapOptions) -> None:
        self.shown = self.read = 0
        self._options = options
        self._decode = reject if options.quarantine else event

    async def run(self, path: Path, kafka: str | None, moment: datetime | str) -> None:
        settings = kafka_settings(path, kafka)
        async with reading(settings, quarantine=self._options.quarantine) as reader:
            if self._options.last is not None and not self._options.filters and not self._options.begin:
                await reader.begin_before_end(self._options.last)
            else:
                await reader.begin_at(moment)
            if self._options.last is not None:
                await self._show_last(reader, self._options.last)
                return
            if self._options.follow and console.ERR.is_terminal:
                console.ERR.print(f"{reader.topic} at {settings.bootstrap_servers}; Ctrl-C ends", style="dim")
            await self._show_all(reader)

    async def _show_all(self, reader: TopicReader) -> None:
        away = False
        while self._options.follow or not await reader.at_the_end():
            records = await reader.step()
            if reader.troubled() and not records and not away:
                away = True
                console.ERR.print("Kafka does not answer; it goes on when it is back")
            elif records and away:
                away = False
                console.ERR.print("Kafka answers again")
            for record in records:
                if not self._options.follow and not reader.before_the_end(record):
                    continue
                row = self._wanted(record)
                if row is not None:
                    self._show(record, row)
                    if self.shown == self._options.limit:
                        sys.stdout.flush()
                        return
            sys.stdout.flush()
            if output_closed():
                raise BrokenPipeError

    async def _show_last(self, reader: TopicReader, count: int) -> None:
        found = await newest(reader, count, lambda record: self._wanted(record) is not None, LAST_BYTES)
        if found.cut:
            raise CommandError(
                f"--last {count}: these records hold more than {console.format_size(LAST_BYTES)}; ask for fewer."
            )
        for record in found.records:
            self._show(record, self._decode(record))
        sys.stdout.flush()

    def _wanted(self, record: Kept) -> Row | None:
        self.read += 1
        row = self._decode(record)
        return row if self._options.filters.passes(row) else None

    def _show(self, record: Kept, row: Row) -> None:
        self.shown += 1
        if self._options.format is Format.PRETTY:
            with console.OUT.capture() as captured:  # rich would end the process itself on a closed pipe
                console.OUT.print(pretty(row))
            sys.stdout.write(captured.get())
            return
        sys.stdout.buffer.write((as_json(row) if self._options.format is Format.JSON else record.value or b"") + b"\n")


def output_closed() -> bool:
    """Return whether the reader of our standard output has gone: a quiet topic gives no write that would tell it."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, io.UnsupportedOperation):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(seen & (select.POLLERR | select.POLLHUP) for _, seen in poll.poll(0))
