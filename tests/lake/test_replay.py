"""Replay: missing records come back, existing rows are not touched, and the proof holds.

`test_model.py` says how far it goes back.
"""

from __future__ import annotations

import pytest
from headrace_lake.tables.layout import DUPLICATES, EVENTS, QUARANTINE

from tests.lake.runs import Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_rows_that_were_deleted_come_back_and_nothing_else(runs: Runs) -> None:
    """Resends stay out while a copy is there."""
    runs.send(1_600, resend_every=20)
    runs.run(batch_records=500)
    covered = 'select topic, max("to"), sum(records) as n from batches group by all order by all'
    said = runs.query(covered)
    runs.sql(EVENTS, "delete from TABLE where `offset` % 7 = 3 and partition <> 1")
    runs.sql(QUARANTINE, "delete from TABLE where partition = 2")
    runs.sql(DUPLICATES, "delete from TABLE where partition = 1")
    lost = len(runs.sent.events) - runs.query("select count(*)::int as n from events")[0]["n"]
    assert lost > 100
    assert not runs.proven()

    runs.replay(batch_records=600)
    landed = runs.said("landed")
    assert (len(landed) > 2, sum(line["events"] for line in landed)) == (True, lost)
    assert runs.query(covered) == said
    runs.check()

    runs.sql(EVENTS, "delete from TABLE where partition = 0 and `offset` < 5")
    runs.send(
        1_600, resend_every=20
    )  # all of it again: of those that were deleted the copies land, by a job that never saw the others
    runs.run()
    assert [line["events"] for line in runs.said("landed")] == [5]
    runs.replay()
    assert [line["events"] for line in runs.said("landed")] == [0]
    assert runs.query("select count(*) - count(distinct event_id) as n from events") == [{"n": 0}]
    assert runs.proven()
