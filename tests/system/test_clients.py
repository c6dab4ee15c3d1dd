"""Real clients: what they send is on the topic as they meant it, and acknowledged as they asked."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter

import pytest
from fluent.sender import EventTime, FluentSender
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import DETERMINISTIC, UNIQUE

from tests.contract.receiver import HOST, Receiver
from tests.contract.topic import Stored, events, in_order, quarantined
from tests.contract.waiting import PATIENCE
from tests.tiers import sized

pytestmark = pytest.mark.kafka

COUNT = sized(2_000, 2_000, 20_000)
"""Events of each client."""
SECONDS = 1_795_253_837


def kinds(records: list[Stored]) -> tuple[int, int]:
    """How many ids are deterministic, how many unique."""
    counts = Counter(record.id[:2].encode() for record in records)
    assert counts.keys() <= {DETERMINISTIC, UNIQUE}
    return counts[DETERMINISTIC], counts[UNIQUE]


def sent_by_python(mark: str, n: int) -> dict:
    return {
        "mark": mark,
        "n": n,
        "text": f'line {n} – ü "quoted"\n',
        "ratio": n / 8,
        "huge": (1 << 63) + n,
        "below": -n,
        "on": n % 2 == 0,
        "nothing": None,
        "list": [n, "two", []],
        "map": {"ключ": "x" * (n % 300)},
    }


def emit(receiver: Receiver, mark: str, precise: bool) -> None:
    """As an application does, one event after the other; whole seconds, or nanoseconds."""
    sender = FluentSender("python", host=HOST, port=receiver.port, timeout=PATIENCE, nanosecond_precision=precise)
    for n in range(COUNT // 2):
        when = EventTime.from_unix_nano(SECONDS * 10**9 + 1 + n * 1000) if precise else SECONDS + n
        assert sender.emit_with_time("app", when, sent_by_python(mark, n)), sender.last_error
    sender.close()


async def test_fluent_logger_python(topics: KafkaSettings, start) -> None:
    receiver = await start()
    marks = {precise: uuid.uuid4().hex for precise in (False, True)}
    await asyncio.gather(*(asyncio.to_thread(emit, receiver, mark, precise) for precise, mark in marks.items()))
    await receiver.shows(COUNT, "events_stored_total")
    records = await events(topics)
    in_order(records)
    for precise, mark in marks.items():
        mine = [record for record in records if record.json["mark"] == mark]
        assert [record.json for record in mine] == [sent_by_python(mark, n) for n in range(COUNT // 2)]
        assert {record["ce_subject"] for record in mine} == {"python.app"}
        assert [record["ce_time"] for record in mine] == [when(n, precise) for n in range(COUNT // 2)]
        assert not any(record.attributes for record in mine)
    assert kinds(records) == (0, COUNT)
    assert len({record.id for record in records}) == COUNT
    assert await quarantined(topics) == []
    assert await receiver.metric("events_unacknowledgeable_total") == COUNT
    assert await receiver.metric("events_acknowledged_total") == 0


def when(n: int, precise: bool) -> str:
    """RFC 3339 as the topic has it."""
    if precise:
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(SECONDS))}.{1 + n * 1000:09d}Z"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(SECONDS + n))
