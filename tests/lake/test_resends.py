"""Resends: an event lands once within the horizon, with either index, which `test_ids.py` compares with one model.

`test_model.py` kills jobs meanwhile, and lets partitions lag.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

import pytest

from tests.lake.runs import Runs
from tests.lake.stream import Message, headers_of, put

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

HORIZON = 600  # seconds
MS = HORIZON * 1000
BEGAN = int(time.time() * 1000) - 3 * 3600 * 1000


class Sent(NamedTuple):
    """A record to send. `at`: ms after `BEGAN`."""

    id: str
    at: int
    partition: int = 0
    protocol: str = "forward"
    bad: bool = False
    body: bytes = b'{"a":1}'

    def message(self) -> Message:
        headers = headers_of(self.id, "/x/h", protocol=self.protocol)
        return Message(self.body, headers[:2] + headers[3:] if self.bad else headers, BEGAN + self.at)


def publish(runs: Runs, *records: Sent) -> None:
    """Sends the records of each partition as one batch."""
    partitions: dict[int, list[Message]] = {}
    for record in records:
        partitions.setdefault(record.partition, []).append(record.message())
    put(runs.kafka, [(runs.kafka.events_topic, *each) for each in partitions.items()])


def landed(runs: Runs) -> list[tuple[str, int, int]]:
    """(id, ms after `BEGAN`, partition), sorted. Checks that the proof holds."""
    assert runs.proven(), runs.proof()
    sql = f'select event_id, epoch_ms(received_time) - {BEGAN} as at, "partition" from events order by all'
    return [(row["event_id"], row["at"], row["partition"]) for row in runs.query(sql)]


def rows_of(*records: Sent) -> list[tuple[str, int, int]]:
    return sorted((record.id, record.at, record.partition) for record in records)


def d(number: int) -> str:
    return f"d.{number:032x}"


def u(number: int) -> str:
    return f"u.{number + (1 << 100):032x}"


FIRST = [Sent(d(n), MS, n % 4) for n in range(6)] + [Sent(u(n), MS) for n in range(2)]
LANDS = [
    Sent(d(0), MS + MS + 1, 1),  # one past the horizon, later
    Sent(d(1), MS - MS - 1, 2),  # and earlier, from a partition that lagged
    Sent("d." + "X" * 32, MS),  # not a valid id
    Sent("d." + "X" * 32, MS, 2),
    Sent(d(100), 5 * MS, 3),
]
COLLAPSES = [
    Sent(d(2), MS + MS, 3),  # on the horizon
    Sent(d(3), 0, 0, protocol="lumberjack"),
    Sent(d(4), MS, 1, protocol="courier"),
    Sent(u(0), MS + 1, 2),  # published again by a receiver
    Sent(u(1), MS, 3),
    Sent(d(5), MS, 1, body=b'{"b":2}', protocol="of nobody"),  # an id is its content: this is the same event
    Sent(d(100), 5 * MS, 3),  # in the same batch and partition
]
"""Records after `FIRST`, mostly in other partitions: those that must land, and those that must not."""


@pytest.mark.parametrize("index", ["auto", "arrays"])
def test_resends_collapse_between_runs_and_batches_and_inside_one(runs: Runs, index: str) -> None:
    publish(runs, *FIRST)
    runs.run(horizon=HORIZON, dedup=index)
    assert landed(runs) == rows_of(*FIRST)
    publish(runs, *LANDS, *COLLAPSES)
    some = [Sent(d(n), MS + 1, n % 4) for n in range(200, 250)]
    publish(runs, *some)
    publish(runs, *(record._replace(at=MS + 2) for record in some))  # a batch of nothing but duplicates
    bad = [Sent(d(400), MS, bad=True), Sent(d(400), MS + 2, bad=True)]
    sound = Sent(d(400), MS + 1)  # ids of bad records are not remembered
    publish(runs, bad[0], sound, bad[1], sound._replace(at=MS + 3))
    runs.run(horizon=HORIZON, dedup=index, batch_records=45)
    there = landed(runs)
    assert {*rows_of(*FIRST, *LANDS[:2])} <= {*there}
    expected = [*FIRST, *LANDS, sound, *some]
    assert Counter(name for name, _, _ in there) == Counter(record.id for record in expected), (
        "which of two in one batch lands is not defined"
    )
    assert runs.query("select count(*) as n from duplicates") == [{"n": len(COLLAPSES) + 50 + 1}]
    assert runs.query("select max(batch) as last from batches where epoch = 2") == [{"last": 2}]
    assert runs.query("select count(*) as q from quarantine") == [{"q": 2}]
    count = runs.metrics.duplicates.labels
    assert [count(protocol)._value.get() for protocol in ("lumberjack", "courier", "other")] == [1, 1, 1]
