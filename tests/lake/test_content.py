"""Rows compared with what Kafka holds at their places: what landed is the same, what was changed since is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.tables.layout import EVENTS, QUARANTINE
from headrace_reader.against_kafka import checks

from tests.cli.operating.topics import asked, event_headers, put, reject_headers
from tests.lake.test_query import batch, event, make, reject

CHANGES = {
    "a space in a body": (EVENTS, {"body": "body || ' '"}),
    "a body moved to payload and changed": (EVENTS, {"payload": "arrow_cast('x', 'Binary')", "body": "null"}),
    "an id rewritten": (EVENTS, {"event_id": "'d.0'"}),
    "a row moved to where no record is": (EVENTS, {'"offset"': '"offset" + 1'}),
    "raw bytes emptied": (QUARANTINE, {"raw": "arrow_cast('', 'Binary')"}),
}


@pytest.mark.kafka
def test_a_change_is_named_by_its_place(topics: KafkaSettings, tmp_path: Path) -> None:
    """Two events and a reject have landed, an event is of a batch under way, and ends of transactions hold no record."""
    sent = [(b'{"n":%d}' % number, event_headers(number)) for number in range(3)]
    put(topics, topics.events_topic, sent, transactions=True)
    put(topics, topics.quarantine_topic, [(b"raw", reject_headers("bad_json"))])
    named: dict[str, Any] = {"topic": topics.events_topic, "topic_id": asked(topics, topics.events_topic).id}
    rejects: dict[str, Any] = {"topic": topics.quarantine_topic, "topic_id": asked(topics, topics.quarantine_topic).id}
    rows = [event(2 * n, event_id=f"d.{n:032x}", body=f'{{"n":{n}}}', payload=None, **named) for n in range(3)]
    make(
        tmp_path,
        events=rows,
        quarantine=[reject(0, raw=b"raw", **rejects)],
        batches=[{**batch(0, 4, 2), **named}, {**batch(0, 1, 0, 1), **rejects}],
    )
    *_, same, compared = checks(topics, tmp_path, content=True)
    assert (same["ok"], compared["detail"]) == (True, "3 records")
    for name, (table, change) in CHANGES.items():
        changed = DeltaTable(str(tmp_path / table))
        whole = changed.version()
        assert changed.update(change, predicate='"offset" < 2')["num_updated_rows"] == 1
        *_, same, _ = checks(topics, tmp_path, content=True)
        assert not same["ok"], name
        assert same["detail"].startswith("1 "), name
        changed.restore(whole)
