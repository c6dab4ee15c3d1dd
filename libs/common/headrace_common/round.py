"""What one turn of a pump sends, and the records of what it could not make events of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from headrace_common.batch import Lot
from headrace_common.consignment import Consignment
from headrace_common.event import HEADERS, Part, Reason, Reject
from headrace_common.inflate import SLICE
from headrace_common.record import decode

REJECT_OVERHEAD: Final = 1024
"""Bytes that a reject costs beyond its own while its round is under way: a frame may hold a hundred thousand tiny ones."""


class Round:
    """What one turn of a pump sends: a batch of events, and the rejects that stand between them."""

    def __init__(self, lot: Lot, limit: int) -> None:
        self.lot = lot
        self.rejects: list[tuple[Consignment, Reject]] = []
        self.consignments: dict[Consignment, None] = {}  # of which it holds something, or that end with it
        self.whole = False  # it holds the end of a frame: somebody waits for it
        self._limit = self._room = limit

    @property
    def size(self) -> int:
        """Bytes of it, before compression."""
        return self.lot.size + self._limit - self._room

    def add(self, parts: list[Part], owner: Consignment) -> int:
        """Adds parts from the front as long as they fit; how many."""
        at = 0
        while at < len(parts):
            at = self.lot.extend(parts, at, owner)
            if at == len(parts):
                break
            part = parts[at]
            if type(part) is bytes or not self._reject(part, owner):
                break
            at += 1
        return at

    def _reject(self, part: Part, owner: Consignment) -> bool:
        assert isinstance(part, Reject)
        if self._room <= 0:
            return False
        self.rejects.append((owner, part))
        self._room -= len(part) + REJECT_OVERHEAD
        return True

    def living(self) -> list[Consignment]:
        """The frames that may still be stored."""
        return [consignment for consignment in self.consignments if not consignment.dead]

    def deadline(self) -> float:
        """When the first of its frames has waited too long."""
        return min(consignment.deadline for consignment in self.living())


def records(reject: Reject, limit: int) -> Iterator[bytes]:
    """The reject's numbered parts, of about `limit` bytes at most; nothing (``b""``) now and then while it is hashed."""
    rest = limit - 4096 - len(reject.attributes) - len(reject.subject) - len(reject.detail)
    size = max(
        limit // 4, rest
    )  # with large attributes a record may be above `limit`, but there are not a thousand of them
    state = hashlib.sha256()
    with memoryview(reject.raw) as raw:
        for start in range(0, len(raw), SLICE):
            state.update(raw[start : start + SLICE])
            yield b""
    sha256 = state.hexdigest().encode()
    pieces = max(1, -(-len(reject.raw) // size))
    for number in range(pieces):
        value = reject.raw[number * size : (number + 1) * size]
        yield reject.record(value, number + 1, pieces, sha256)


def refusal(record: bytes) -> Reject:
    """An event that Kafka refused for its content, as a reject: its value, with the rest of it in the attributes."""
    value, pairs = decode(record)
    headers = {key: text.decode("utf-8", "replace") for key, text in pairs}
    return Reject(
        Reason.REFUSED,
        "Kafka refused this record",
        value,
        headers["ce_type"].split(".")[1],
        headers["ce_source"],
        headers["ce_subject"],
        headers["ce_id"].encode(),
        (headers.get(HEADERS[7]) or "{}").encode(),
    )
