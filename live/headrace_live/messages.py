"""The newest messages of a topic, as the page shows them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from headrace_cli.operating.records import Filters, StoredRecord, event, reject, shown_value
from headrace_cli.operating.topic import newest_of_last, reading
from headrace_common.operations.settings import KafkaSettings

MESSAGES: Final = 50
"""Most messages of one answer to the page."""
MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of records that are held for them."""
LOOKED: Final = 20_000
"""Records that are looked through for them, over all partitions; more only where offsets hold none."""
SECONDS: Final = 8.0
"""Most time for that."""


async def messages(settings: KafkaSettings, filters: Filters, text: str, *, quarantine: bool) -> dict[str, Any]:
    """Return the newest messages that pass, the newest first, as the page shows them. `text`: must be somewhere in the value.

    Takes 20 s at most. Raises `CommandError`, `DeliveryError`, `TimeoutError`.
    """
    decode, sought = reject if quarantine else event, text.encode()

    def wanted(record: StoredRecord) -> bool:
        return sought in (record.value or b"") and (not filters or filters.passes(decode(record)))

    async with asyncio.timeout(SECONDS + 10), reading(settings, quarantine=quarantine) as reader:
        within = LOOKED // reader.partitions if filters or text else MESSAGES
        found = await newest_of_last(reader, max(within, 1), MESSAGES, wanted, MESSAGE_BYTES, SECONDS)
    return {
        "messages": [_shown(record, decode(record)) for record in reversed(found.records)],
        "read": found.read,
        "whole": not found.late and not found.cut,
    }


def _shown(record: StoredRecord, row: dict[str, Any]) -> dict[str, Any]:
    shown = {
        name: str(value) if name == "received_time" else shown_value(value)
        for name, value in row.items()
        if value is not None
    }
    heading = {name: shown.get(name, "") for name in ("protocol", "stream", "source", "reason")}
    content = next((shown[name] for name in ("body", "payload", "raw") if name in shown), "")
    place = f"{record.topic}-{record.partition}-{record.offset}"
    identity = shown.get("event_id") or shown.get("id") or ""
    return {
        "place": place,
        "time": record.timestamp / 1000,
        "id": identity,
        "content": content,
        "fields": shown,
        **heading,
    }
