"""Resends: an event lands once within the horizon, with either index, which `test_ids.py` compares with one model.

`test_model.py` kills jobs meanwhile, and lets partitions lag.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import HEADERS
from headrace_lake.configuration.settings import LakeProcessSettings
from pyspark.sql import SparkSession

from tests.lake.runs import Runs
from tests.lumberjack.driving import document
from tests.lumberjack.test_events import one

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

HORIZON = 600  # seconds
MS = HORIZON * 1000


@dataclass(frozen=True)
class Sent:
    """A record to send. `at`: ms after the lake's `began`."""

    id: str
    at: int
    partition: int = 0
    protocol: str = "forward"
    marked: bool = False
    bad: bool = False
    body: bytes = b'{"a":1}'


def d(number: int) -> str:
    return f"d.{number:032x}"


def u(number: int) -> str:
    return f"u.{number + (1 << 100):032x}"


class Lake(Runs):
    """Runs of the job with one of the indexes, on records of chosen times."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, folder: Path, way: str) -> None:
        super().__init__(spark, kafka, folder)
        self.began = int(time.time() * 1000) - 3 * 3600 * 1000
        self._way = way

    def settings(self, kafka: KafkaSettings | None = None, **lake: Any) -> LakeProcessSettings:
        return super().settings(kafka, **{"horizon": HORIZON, "dedup": self._way, **lake})

    def publish(self, *records: Sent) -> None:
        asyncio.run(self._publish(records))

    async def _publish(self, records: tuple[Sent, ...]) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers, acks="all", max_batch_size=1 << 20
        ) as producer:
            for partition in {record.partition for record in records}:
                batch = producer.create_batch()
                for record in records:
                    if record.partition == partition:
                        at = self.began + record.at
                        made = batch.append(key=None, value=record.body, timestamp=at, headers=_headers(record))
                        assert made is not None
                batch.close()
                await (await producer.send_batch(batch, self.kafka.events_topic, partition=partition))

    def landed(self) -> list[tuple[str, int, int]]:
        """(id, ms after `began`, partition), sorted. Checks that the proof holds."""
        assert self.proven(), self.proof()
        sql = f'select event_id, epoch_ms(received_time) - {self.began} as at, "partition" from events order by all'
        return [(row["event_id"], row["at"], row["partition"]) for row in self.query(sql)]

    def ids(self) -> Counter[str]:
        """How often each id landed."""
        return Counter(row[0] for row in self.landed())

    def duplicates(self) -> int:
        (row,) = self.query("select count(*) as n from duplicates")
        return int(row["n"])

    def counted(self, protocol: str) -> float:
        """The metric, over all runs."""
        return self.metrics.registry.get_sample_value("headrace_lake_duplicates_total", {"protocol": protocol}) or 0.0


def _headers(record: Sent) -> list[tuple[str, bytes]]:
    attributes = b'{"index":1,"republished":true}' if record.marked else b'{"index":1}'
    values = (
        b"1.0", record.id.encode(), b"/x/h", f"headrace.{record.protocol}.event".encode(), b"s", b"2026-05-06T00:00:00Z",
        b"application/json", attributes,
    )  # fmt: skip
    headers = list(zip(HEADERS, values, strict=True))
    return headers[:2] + headers[3:] if record.bad else headers


def _rows(*records: Sent) -> list[tuple[str, int, int]]:
    return sorted((record.id, record.at, record.partition) for record in records)


def _ids(*records: Sent) -> Counter[str]:
    return Counter(record.id for record in records)


@pytest.fixture(params=["auto", "arrays"])
def lake(
    spark: SparkSession, topics: KafkaSettings, tmp_path: Path, empty_tables: Path, request: pytest.FixtureRequest
) -> Lake:
    shutil.copytree(empty_tables, tmp_path / "lake")
    return Lake(spark, topics, tmp_path, request.param)


FIRST = [Sent(d(n), MS, n % 4) for n in range(6)] + [Sent(u(n), MS) for n in range(2)]


def _spoofed() -> list[Sent]:
    """Two events of a client that gives all its events one `_id`."""
    alike = {"@metadata": {"_id": "x"}}
    return [Sent(one(document(number, **alike)).id, MS, 1, protocol="lumberjack") for number in (1, 2)]


def _resends() -> tuple[list[Sent], list[Sent]]:
    """Records after `FIRST`, in other partitions: those that must land, and those that must not."""
    lands = [
        Sent(d(0), MS + MS + 1, 1),  # one past the horizon, later
        Sent(d(1), MS - MS - 1, 2),  # and earlier, from a partition that lagged
        Sent("d." + "X" * 32, MS),  # not a valid id
        Sent("d." + "X" * 32, MS, 2),
        Sent(d(100), 5 * MS, 3),
        *_spoofed(),
    ]
    collapses = [
        Sent(d(2), MS + MS, 3),  # on the horizon
        Sent(d(3), 0, 0, protocol="lumberjack"),
        Sent(d(4), MS, 1, protocol="courier"),
        Sent(u(0), MS + 1, 2, marked=True),  # published again by a receiver
        Sent(u(1), MS, 3),
        Sent(d(5), MS, 1, body=b'{"b":2}', protocol="of nobody"),  # an id is its content: this is the same event
        Sent(d(100), 5 * MS, 3),  # in the same batch and partition
    ]
    return lands, collapses


def test_resends_collapse_between_runs_and_batches_and_inside_one(lake: Lake) -> None:
    lake.publish(*FIRST)
    lake.run()
    assert lake.landed() == _rows(*FIRST)
    lands, collapses = _resends()
    lake.publish(*lands, *collapses)
    some = [Sent(d(n), MS + 1, n % 4) for n in range(200, 250)]
    lake.publish(*some)
    lake.publish(*(replace(record, at=MS + 2) for record in some))  # a batch of nothing but duplicates
    bad = [Sent(d(400), MS, bad=True), Sent(d(400), MS + 2, bad=True)]
    sound = Sent(d(400), MS + 1)  # ids of bad records are not remembered
    lake.publish(bad[0], sound, bad[1], replace(sound, at=MS + 3))
    lake.run(batch_records=45)
    assert {*_rows(*FIRST, *lands[:2])} <= {*lake.landed()}
    expected = [*FIRST, *lands, sound, *some]
    assert lake.ids() == _ids(*expected), "which of two in one batch lands is not defined"
    assert lake.duplicates() == len(collapses) + 50 + 1
    assert lake.query("select max(batch) as last from batches where epoch = 2") == [{"last": 2}]
    assert lake.query("select count(*) as q from quarantine") == [{"q": 2}]
    counted = {name: lake.counted(name) for name in ("lumberjack", "courier", "other")}
    assert counted == {"lumberjack": 1, "courier": 1, "other": 1}
