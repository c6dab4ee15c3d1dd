"""Items of quarantine, put together from their parts. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from headrace_cli.errors import CommandError
from headrace_cli.operating.watch.records import Row
from headrace_cli.verbs.console import format_size

HELD_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of items whose parts have not all come."""
_ID: Final = re.compile(r"[ud]\.[0-9a-f]{32}")


@dataclass
class Item:
    """What a client sent and nobody understood. `name` is its id, or its place on its topic if it has none.

    `pieces`: its parts by number, from 1; empty if only their `sizes` were asked for. What a client sends again is the same item.
    """

    name: str
    reason: str
    detail: str
    protocol: str
    stream: str
    source: str
    received: datetime
    sha256: str
    parts: int
    attributes: Any = None
    sizes: dict[int, int] = field(default_factory=dict)
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all parts are there."""
        return len(self.sizes) == self.parts

    @property
    def size(self) -> int:
        """Bytes of the parts that are there."""
        return sum(self.sizes.values())

    def content(self) -> bytes:
        """The bytes of the parts that are there, in order."""
        return b"".join(self.pieces[number] for number in sorted(self.pieces))

    def problem(self) -> str:
        """Why the content is not what the client sent; empty if it is."""
        if not self.complete:
            return f"{self.parts - len(self.sizes)} of {self.parts} parts are missing"
        if self.sha256 and hashlib.sha256(self.content()).hexdigest() != self.sha256:
            return "its bytes do not have the hash that they had"
        return ""

    def described(self) -> Row:
        """Its columns, for JSON."""
        return {
            "name": self.name,
            "reason": self.reason,
            "detail": self.detail,
            "protocol": self.protocol,
            "stream": self.stream,
            "source": self.source,
            "received_time": self.received,
            "bytes": self.size,
            "parts": self.parts,
            "sha256": self.sha256,
            "attributes": self.attributes,
        }


def name_of(row: Row) -> str:
    """The name of the item that a row is a part of. Nothing but an id of ours becomes a name, since it may name a file."""
    found = row.get("id")
    if isinstance(found, str) and _ID.fullmatch(found):
        return found
    return f"{row['topic']}-{row['partition']}-{row['offset']}"


def gathered(rows: Iterable[Row]) -> Iterator[Item]:
    """Put the rows' parts together; an item comes as soon as it is complete, and at the end what is not.

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
        if number not in item.sizes:
            raw = row.get("raw")
            item.sizes[number] = len(raw) if raw is not None else int(row.get("size") or 0)
            if raw is not None:
                item.pieces[number] = bytes(raw)
                held += len(raw)
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
