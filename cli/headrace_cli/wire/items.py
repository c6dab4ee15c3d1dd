"""Items of quarantine: put together from rows of the lake, and read once more with the settings now given."""

# ruff: noqa: S608  (the SQL is assembled from constants; values are parameters)
from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pkgutil import resolve_name
from typing import Any, Final

import duckdb
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import Settings, load
from headrace_common.protocol import installed
from headrace_common.record.contract import Attribute, Reason
from headrace_common.session.again import ImpossibleError, QuarantinedItem, ReplayOutcome, whole_record
from headrace_reader.address import LakeAddress, without_secrets
from headrace_reader.tables import Row, connect, first_line

from headrace_cli.console import format_size
from headrace_cli.ground import CommandError
from headrace_cli.operating.parts import settings_class
from headrace_cli.operating.records import parsed


class ItemReader:
    """Reads items with the settings of the environment."""

    def __init__(self) -> None:
        self._settings: dict[str, Settings] = {}

    def read(self, item: Item) -> ReplayOutcome:
        """Return the receiver's outcome for an item today. Raises `ConfigError` for wrong settings, and nothing else."""
        problem = item.problem()
        if problem:
            return ReplayOutcome(impossible=problem)
        if item.reason not in list(Reason):
            return ReplayOutcome(impossible="the record breaks the contract on its topic, no client sent it so")
        read = next((each.again for each in installed() if each.name == item.protocol), "")
        if not read:
            return ReplayOutcome(impossible=f"nobody reads {item.protocol}")
        about = item.attributes if isinstance(item.attributes, dict) else {}
        rejected = QuarantinedItem(
            item.name, item.reason, item.protocol, item.stream, item.source, received_ms(item), item.sha256, about,
            item.content(),
        )  # fmt: skip
        try:
            if about.get(Attribute.RECORD.value):
                return whole_record(rejected)
            replayed: ReplayOutcome = resolve_name(read)(rejected, self._settings_of(item.protocol))
            return replayed
        except ProtocolError as error:
            return ReplayOutcome(
                impossible=f"the stream breaks: {error}" + (f" ({error.limit})" if error.limit else "")
            )
        except (ImpossibleError, ValueError, KeyError, TypeError, struct.error) as error:
            return ReplayOutcome(impossible=str(error) or type(error).__name__)

    def _settings_of(self, protocol: str) -> Settings:
        if protocol not in self._settings:
            self._settings[protocol] = load(settings_class(protocol))
        return self._settings[protocol]


def received_ms(item: Item) -> int:
    """Return when it was received, Unix time in milliseconds."""
    return int(item.received_time.timestamp() * 1000)


HELD_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of items whose parts have not all come."""
_ID: Final = re.compile(r"[ud]\.[0-9a-f]{32}")

_COLUMNS: Final = (
    "id", "reason", "detail", "protocol", "stream", "source", "part", "parts", "sha256", "attributes", "received_time",
    "topic", "partition", "offset", "raw",
)  # fmt: skip
_AT_ONCE: Final = 100


@dataclass
class Item:
    """An item that a client sent and no receiver understood. `name` is its id, or its place on its topic if it has none.

    `pieces`: its parts by number, from 1. A resend is the same item.
    """

    name: str
    reason: str
    detail: str
    protocol: str
    stream: str
    source: str
    received_time: datetime
    sha256: str
    parts: int
    attributes: Any = None
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.pieces) == self.parts

    def content(self) -> bytes:
        return b"".join(self.pieces[number] for number in sorted(self.pieces))

    def problem(self) -> str:
        """Return why the content differs from the client's; empty if it does not."""
        if not self.complete:
            return f"{self.parts - len(self.pieces)} of {self.parts} parts are missing"
        if self.sha256 and hashlib.sha256(self.content()).hexdigest() != self.sha256:
            return "its bytes do not have the hash that they had"
        return ""


def name_of(row: Row) -> str:
    """Return the name of the item that a row is a part of: its id if that is one of ours, or its place on its topic."""
    found = row.get("id")
    if isinstance(found, str) and _ID.fullmatch(found):
        return found
    return f"{row['topic']}-{row['partition']}-{row['offset']}"


def gathered(rows: Iterable[Row]) -> Iterator[Item]:
    """Put the rows' parts together; an item comes as soon as it is complete, incomplete ones at the end.

    An item that was sent again comes once. Raises `CommandError` if parts without their others hold too much.
    """
    open_items: dict[tuple[str, str], Item] = {}
    done: set[tuple[str, str]] = set()
    held = 0
    for row in rows:
        key = (name_of(row), str(row.get("sha256") or ""))
        if key in done:
            continue
        item = open_items.get(key) or _item(key, row)
        number = int(row.get("part") or 1)
        if number not in item.pieces:
            item.pieces[number] = bytes(row.get("raw") or b"")
            held += len(item.pieces[number])
        if item.complete:
            held -= sum(map(len, item.pieces.values()))
            open_items.pop(key, None)
            done.add(key)
            yield item
            continue
        open_items[key] = item
        if held > HELD_BYTES:
            raise CommandError(f"Parts without their others hold more than {format_size(HELD_BYTES)}: narrow the time.")
    yield from open_items.values()


def _item(key: tuple[str, str], row: Row) -> Item:
    return Item(
        key[0],
        str(row.get("reason") or ""),
        str(row.get("detail") or ""),
        str(row.get("protocol") or "-"),
        str(row.get("stream") or "-"),
        str(row.get("source") or "-"),
        row["received_time"],
        key[1],
        int(row.get("parts") or 1),
        row.get("attributes"),
    )


def items_of(
    lake: LakeAddress, reasons: Sequence[str] = (), protocols: Sequence[str] = (), since: datetime | None = None
) -> Iterator[Item]:
    """Return the items of these reasons and protocols (all, if there are none) that came since a time, the newest first.

    Raises `CommandError` if the table is missing or unreadable.
    """
    return gathered(_rows(lake, reasons, protocols, since))


def _rows(lake: LakeAddress, reasons: Sequence[str], protocols: Sequence[str], since: datetime | None) -> Iterator[Row]:
    """Yield the rows of the quarantine table, the newest item first, its parts in order."""
    conditions: list[tuple[str, Any]] = []
    if reasons:
        conditions.append(("list_contains(?, reason)", list(reasons)))
    if protocols:
        conditions.append(("list_contains(?, protocol)", list(protocols)))
    if since is not None:
        conditions.append(("received_time >= ?", since))
    place = """(topic || '-' || "partition" || '-' || "offset")"""
    where = " and ".join(condition for condition, _ in conditions) or "true"
    selected = ", ".join(f'"{column}"' for column in _COLUMNS)
    newest = f"max(received_time) over (partition by coalesce(id, {place}), sha256)"
    order = f'{newest} desc, id, sha256, part, received_time, "partition", "offset"'
    with connect(lake) as connection:
        try:
            found = connection.execute(
                f"select {selected} from quarantine where {where} order by {order}", [value for _, value in conditions]
            )
            names = [column[0] for column in found.description or ()]
            while rows := found.fetchmany(_AT_ONCE):
                for values in rows:
                    row = dict(zip(names, values, strict=True))
                    yield {**row, "attributes": parsed(row["attributes"] or "null")}
        except duckdb.Error as error:
            why = without_secrets(first_line(str(error)))
            raise CommandError(f"The quarantine table in {lake} cannot be read: {why}") from error
