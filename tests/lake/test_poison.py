"""All kinds of records that anybody could send to the topics, through Kafka and the whole job: each lands, none stops it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from headrace_common.record.contract import RecordFault
from headrace_lake.spark.halt import HaltError

from tests.lake.runs import Runs
from tests.lake.stream import Message, put
from tests.lake.test_decode import FAULTY, GOOD, REJECT, SOUND, TIMES, Record, changed, expected_fault

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DAY: Final = 86_400_000
TIMESTAMPS: Final = (0, DAY, 253_402_300_799_999, 253_402_300_800_000, 8_000_000_000_000_000, -1, -62_135_596_800_001)
"""Milliseconds: 1970, the year 9999 and one later, the year 255486, before 1970, before the year 1."""

GREGORIAN: Final = -12_219_292_800_000
"""15 October 1582. Spark's source reads earlier times by the Julian calendar, and so is off by days."""

ANYTHING: Final = {
    "message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1", "max.message.bytes": str(1 << 22),
}  # fmt: skip
"""How a topic takes any time, and keeps it."""

KEYS: Final = (b"", b"k", b"\xff" * 1_000)
HUGE: Final = {
    "1 MB header of ours, no UTF-8": Record(changed("ce_id", b"\xff" * 1_000_000)),
    "1 MB header of a stranger": Record([*GOOD, ("x", b"\x00" * 1_000_000)]),
    "3 MB value": Record(value=b"[" + b"1," * 1_500_000 + b"1]"),
    "10,000 headers": Record([*GOOD, *(("x", b"1") for _ in range(10_000))]),
    "10,000 times a header of ours": Record([*GOOD, *[GOOD[1]] * 10_000]),
}


def records() -> list[tuple[Record, int | None]]:
    """Records and their timestamps; None: now."""
    kinds = [record for record, _, _ in FAULTY.values()] + [*SOUND.values(), *HUGE.values()]
    kinds += [Record(changed("ce_time", text)) for text in TIMES]
    kinds += [Record(key=key) for key in KEYS] + [Record(value=None, key=key) for key in KEYS]
    kinds += [Record(headers, None) for headers in (None, [], REJECT)] + [Record(REJECT)]
    stamped: list[tuple[Record, int | None]] = [(record, None) for record in kinds]
    stamped += [(record, stamp) for stamp in TIMESTAMPS for record in (Record(), Record(None))]
    return [(_with_id(record, b"d.%032x" % index), stamp) for index, (record, stamp) in enumerate(stamped)]


def _with_id(record: Record, event_id: bytes) -> Record:
    """Gives the record its own id if it has the usual one; otherwise most would be resends."""
    usual = GOOD[1]
    headers = record.headers and [(usual[0], event_id) if header == usual else header for header in record.headers]
    return replace(record, headers=headers)


def send(runs: Runs, sent: list[tuple[Record, int | None]], partition: int) -> None:
    """Sends each record as a batch of its own, since some have a size or a time that no other has."""
    messages = [Message(record.value, record.headers or [], stamp, record.key) for record, stamp in sent]
    offsets = put(runs.kafka, [(runs.kafka.events_topic, partition, [message]) for message in messages])
    assert offsets == [*range(len(sent))]


def test_each_record_lands_and_one_whose_time_spark_does_not_have_is_named(runs: Runs) -> None:
    sent, topic = records(), runs.kafka.events_topic
    anything = ConfigResource(ConfigResourceType.TOPIC, topic, configs=ANYTHING)
    runs.admin(lambda admin: admin.alter_configs([anything]))
    send(runs, sent, 2)
    runs.run()
    stamp_of = "epoch_us(received_time) as stamp"  # Python has no date for some of them
    events = {row["offset"]: row for row in runs.query(f'select "offset", body, payload, {stamp_of} from events')}
    rejects = {row["offset"]: row for row in runs.query(f'select "offset", reason, raw, {stamp_of} from quarantine')}
    for offset, (record, stamp) in enumerate(sent):
        row = events.get(offset, rejects.get(offset))
        assert row is not None, record
        assert (offset in rejects) is (expected_fault(record) is not None), (record, row)
        if stamp is not None and stamp >= GREGORIAN:
            assert row["stamp"] == stamp * 1000
        if offset in rejects:
            assert (row["reason"], row["raw"]) == (expected_fault(record), record.value)
        else:
            assert (row["body"].encode() if row["payload"] is None else row["payload"]) == record.value
    assert len(events) + len(rejects) == len(sent)
    assert {row["reason"] for row in rejects.values()} == {str(fault) for fault in RecordFault}
    assert runs.proven()

    stamps = (None, nanoseconds := 1_778_068_800_000_000_000, None)
    send(runs, [(_with_id(Record(), b"d.a%031x" % n), stamp) for n, stamp in enumerate(stamps)], 1)
    with pytest.raises(
        HaltError, match=rf"Record at topic {topic} partition 1 offset 1 has timestamp value {nanoseconds} that"
    ):
        runs.run()
    runs.delete_records({1: 2})
    runs.run(accept_loss=True)
    assert [row["offset"] for row in runs.query('select "offset" from events where partition = 1')] == [2]
    assert runs.query('select "from", "to" from gaps') == [{"from": 0, "to": 2}]
    assert runs.proven()
