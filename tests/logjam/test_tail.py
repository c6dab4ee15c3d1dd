"""What the topics hold behind where a consumer stood, without Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from headrace_common.kafka.client import Topic
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import GAP_TYPE
from headrace_logjam.devices import tail
from headrace_logjam.devices.gaps import NumbersBehind
from headrace_logjam.devices.held import StoredNumbers
from headrace_logjam.devices.positions import DevicePosition
from headrace_logjam.devices.tail import WINDOW_MS, add, read_tail

NOW = 1_700_000_000_000
SOURCE = "/logjam/one"
WHERE = TopicPartition("events", 0)


def record(number: int, at: int = NOW, headers: Mapping[str, bytes | None] | None = None, **more: Any) -> Any:
    """A message of a device that `us` has stored, or what `more` makes of it."""
    about = orjson.dumps({"device": 7, "sequence": number, "consumer": "us"})
    found: dict[str, bytes | None] = {"ce_source": SOURCE.encode(), "ce_type": b"headrace.logjam.event"}
    found |= {"ce_attributes": about, **(headers or {})}
    fields = {"timestamp": at, "timestamp_type": 0, "value": b"{}", "headers": list(found.items()), **more}
    return ConsumerRecord(
        topic="events", partition=0, offset=number, key=None, checksum=None, serialized_key_size=0, serialized_value_size=0,
        **fields,
    )  # fmt: skip


QUARANTINED = {
    "ce_type": None,
    "ce_attributes": None,
    "attributes": orjson.dumps({"device": 7, "sequence": 6, "consumer": "us"}),
}
MARKER = orjson.dumps({"consumer": "us", "device": 7, "from": 3, "to": 9})
REFUSED = orjson.dumps({"consumer": "us", "device": 7, "from": 3, "to": 9, "after": NOW - 2, "before": NOW - 1})


@pytest.mark.parametrize(
    ("stored", "numbers"),
    [
        (record(6), [(6, 7)]),
        (record(6, at=NOW - 1), []),
        (record(5), []),
        (record(6, headers={"ce_source": b"/logjam/two"}), []),
        (record(6, headers={"ce_source": None}), []),
        (record(6, headers={"ce_attributes": b"no JSON"}), []),
        (record(6, headers={"ce_attributes": b'{"device": 7, "sequence": 6, "consumer": "other"}'}), []),
        (record(6, timestamp_type=1), []),
        (record(6, headers=QUARANTINED | {"part": b"1/1"}), [(6, 7)]),
        (record(6, headers=QUARANTINED | {"part": b"1/2"}), []),
        (record(6, headers=QUARANTINED | {"part": b"2/2"}), [(6, 7)]),
        (record(6, headers={"ce_type": GAP_TYPE.encode()}, value=MARKER), [(6, 9)]),
        (record(6, at=NOW + 5000, headers={"ce_type": GAP_TYPE.encode()}, value=REFUSED), []),
        (record(6, headers={"ce_type": GAP_TYPE.encode()}, value=None), []),
    ],
    ids=[
        "a message in the same moment", "earlier", "not behind it", "another endpoint", "no source", "no JSON",
        "another consumer", "the broker's time", "quarantined", "its first part", "its last part", "a marker",
        "a marker of an earlier start, stored later",
        "no value",
    ],
)  # fmt: skip
def test_only_what_this_consumer_has_stored_behind_its_position_counts(stored: Any, numbers: list[Any]) -> None:
    held = StoredNumbers("us", {7: DevicePosition(5, NOW)})
    add(stored, {SOURCE.encode(): held})
    assert held.behind() == ({7: NumbersBehind(numbers, NOW)} if numbers else {})


class Reader:
    """A consumer of one partition: its records, of which it gives two at a time, and after how many reads it gives none."""

    def __init__(self, records: list[Any], reads: int = 1000) -> None:
        self.records, self.reads = records, reads
        self.at = 0
        self.stopped = False

    def assign(self, places: object) -> None: ...

    def pause(self, *places: object) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.stopped = True

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.records[-1].offset + 1 if at == WHERE else 0 for at in places}

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        later = [each for each in self.records if each.timestamp >= times[WHERE]]
        found = OffsetAndTimestamp(later[0].offset, later[0].timestamp) if later else None
        return {at: found if at == WHERE else None for at in times}

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.at = offset

    async def position(self, at: TopicPartition) -> int:
        return self.at

    async def getmany(self, *places: TopicPartition, **_: object) -> dict[TopicPartition, list[Any]]:
        self.reads -= 1
        if self.reads < 0:
            await asyncio.Event().wait()
        some = [each for each in self.records if each.offset >= self.at][:2]
        self.at = some[-1].offset + 1
        return {WHERE: some}


async def tail_of(monkeypatch: pytest.MonkeyPatch, reader: Reader) -> Any:
    async def topics(settings: KafkaSettings) -> list[Topic]:
        return [Topic("events", 1, 0), Topic("quarantine", 1, 0)]

    monkeypatch.setattr(tail, "describe", topics)
    monkeypatch.setattr(tail, "make_consumer", lambda settings: reader)
    found = await read_tail(KafkaSettings(), "us", {"one": {7: DevicePosition(5, NOW)}, "none": {}})
    assert reader.stopped
    assert found.held["none"].behind() == {}
    behind = found.held["one"].behind().get(7)
    return ([] if behind is None else behind.numbers), found.whole


async def test_records_are_looked_for_in_a_window_around_the_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came later was stored behind a longer silence: it is not looked for, however much the topic holds by now."""
    times = {6: NOW, 7: NOW + 1, 9: NOW + WINDOW_MS, 10: NOW + WINDOW_MS + 1, 11: NOW + 2, 12: NOW + 2, 13: NOW + 2}
    records = [record(4, NOW - 1), *(record(*each) for each in times.items())]
    assert await tail_of(monkeypatch, Reader(records)) == ([(6, 8), (9, 11)], True)


async def test_what_is_found_in_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TIME", 0.5)
    assert await tail_of(monkeypatch, Reader([record(number) for number in range(6, 20)], reads=3)) == (
        [(6, 12)],
        False,
    )


async def test_nothing_is_looked_for_where_it_stood_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "describe", None)
    found = await read_tail(KafkaSettings(), "us", {"one": {}})
    assert (found.held["one"].behind(), found.whole) == ({}, True)
