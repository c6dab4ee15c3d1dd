"""Rejects on their way to quarantine: as numbered records."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from headrace_common.publishing.batch import Batch
from headrace_common.publishing.in_flight import InFlightFrame
from headrace_common.record.contract import Reason
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.session.inflate import SLICE


async def batches(
    rejects: Sequence[tuple[InFlightFrame, Reject]],
    new_batch: Callable[[], Batch],
    limit: int,
    breathe: Callable[[], Awaitable[None]],
) -> AsyncIterator[Batch]:
    """Yields the rejects' records, one batch at a time. Calls `breathe` between short pieces of work."""
    batch = new_batch()
    for owner, reject in rejects:
        state = hashlib.sha256()
        with memoryview(reject.raw) as raw:
            for start in range(0, len(raw), SLICE):
                await breathe()
                state.update(raw[start : start + SLICE])
        for record in records(reject, limit, state.hexdigest()):
            await breathe()
            if not batch.add(record, owner):
                yield batch
                batch = new_batch()
                batch.add(record, owner)
    yield batch


def records(reject: Reject, limit: int, sha256: str) -> Iterator[bytes]:
    """Yields the reject's numbered parts, each about `limit` bytes at most."""
    rest = limit - 4096 - len(reject.attributes) - len(reject.subject) - len(reject.detail)
    # The floor bounds the number of parts; with large attributes a record may then exceed `limit`. A topic may take nothing.
    size = max(limit // 4, rest, 1)
    pieces = max(1, -(-len(reject.raw) // size))
    for number in range(pieces):
        value = reject.raw[number * size : (number + 1) * size]
        yield reject.record(value, number + 1, pieces, sha256.encode())


def refusal(record: bytes) -> Reject:
    """Makes a reject of an event that Kafka refused because of its content: the whole record, as `encode` makes it."""
    headers = {key: text.decode("utf-8", "replace") for key, text in decode(record)[1]}
    return Reject(
        Reason.REFUSED,
        "Kafka refused this record",
        record,
        headers["ce_type"].split(".")[1],
        headers["ce_source"],
        headers["ce_subject"],
        headers["ce_id"].encode(),
    )
