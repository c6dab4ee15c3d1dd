"""What a pump sends in one cycle: a batch of events, and the rejects that came between them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from headrace_common.publishing.batch import Batch
from headrace_common.publishing.in_flight_frame import InFlightFrame
from headrace_common.record.contract import EventHeader, Reason
from headrace_common.record.encoding import decode
from headrace_common.record.event import Part, Reject
from headrace_common.session.inflate import SLICE

REJECT_OVERHEAD: Final = 1024
"""Bytes that a reject takes in memory beyond its own during its cycle: a frame may hold a hundred thousand tiny ones."""


class ProduceCycle:
    """A batch of events, the rejects between them, and the frames they belong to."""

    def __init__(self, batch: Batch, limit: int) -> None:
        self.batch = batch
        self.rejects: list[tuple[InFlightFrame, Reject]] = []
        self.frames: dict[InFlightFrame, None] = {}  # frames with parts in this cycle, or that end with it
        self.whole = False  # it holds the end of a frame: a client waits for it
        self.rejects_in_doubt = False  # Kafka may have stored some of the rejects
        self._limit = self._room = limit

    @property
    def size(self) -> int:
        """Bytes before compression."""
        return self.batch.size + self._limit - self._room

    def add(self, parts: list[Part], owner: InFlightFrame) -> int:
        """Adds parts, in order, while they fit. Returns how many."""
        at = 0
        while at < len(parts):
            at = self.batch.extend(parts, at, owner)
            if at == len(parts):
                break
            part = parts[at]
            if not isinstance(part, Reject) or not self._reject(part, owner):
                break
            at += 1
        return at

    def _reject(self, part: Reject, owner: InFlightFrame) -> bool:
        if self._room <= 0:
            return False
        self.rejects.append((owner, part))
        self._room -= len(part) + REJECT_OVERHEAD
        return True

    def living(self) -> list[InFlightFrame]:
        """The frames that are not abandoned."""
        return [frame for frame in self.frames if not frame.dead]

    def deadline(self) -> float:
        """The latest deadline of its living frames: after it nobody waits. In the past if there are none."""
        return max((frame.deadline for frame in self.living()), default=0.0)

    def events_stored(self, refused: Sequence[tuple[bytes, InFlightFrame]]) -> None:
        """Kafka has stored the batch, except `refused`, which become rejects."""
        self.rejects += [(owner, _refusal(record)) for record, owner in refused]
        self.batch.clear()

    def rejects_stored(self) -> list[Reject]:
        """Kafka has stored all rejects. Returns them."""
        stored, self.rejects = self.rejects, []
        return [reject for _, reject in stored]

    def take_stored(self) -> list[InFlightFrame]:
        """The living frames that have nothing left to send in this cycle: Kafka has stored all their parts in it. Returns
        each frame once; leaves out frames whose rejects are not stored yet.
        """
        assert not len(self.batch)
        unsent = {owner for owner, _ in self.rejects}
        stored = [frame for frame in self.frames if frame not in unsent]
        for frame in stored:
            del self.frames[frame]
        return [frame for frame in stored if not frame.dead]

    def drop_dead(self) -> None:
        """Drops the events and rejects of abandoned frames."""
        if not any(frame.dead for frame in self.frames):
            return
        self.batch.drop_dead()
        self.rejects = [(owner, reject) for owner, reject in self.rejects if not owner.dead]


def records(reject: Reject, limit: int) -> Iterator[bytes]:
    """The reject's numbered parts, each about `limit` bytes at most. Yields empty bytes while it hashes, as pauses."""
    rest = limit - 4096 - len(reject.attributes) - len(reject.subject) - len(reject.detail)
    # The floor bounds the number of parts; with large attributes a record may then exceed `limit`.
    size = max(limit // 4, rest)
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


def _refusal(record: bytes) -> Reject:
    """Makes a reject of an event that Kafka refused because of its content: its value, headers and attributes."""
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
        (headers.get(EventHeader.ATTRIBUTES) or "{}").encode(),
    )
