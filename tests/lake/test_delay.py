"""Few records wait for more, at most for LAKE__DELAY: a batch costs the same whatever is in it."""

from __future__ import annotations

import time

import pytest
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.kafka.source import delay_options

from tests.lake.runs import Running, Runs

BETWEEN = 2.0
"""Seconds in which the job looks several times, and lands what does not wait."""


@pytest.mark.kafka
@pytest.mark.spark
def test_few_records_wait_until_they_are_enough(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LakeSettings, "least_records", 1000)

    def batches() -> list[int]:
        return [row["records"] for row in runs.query("select records from batches where records > 0 order by batch")]

    runs.send(400, "first")
    job = Running(runs, delay=3600)
    job.wait(lambda: not batches())  # the first batch waits for nothing
    time.sleep(BETWEEN)
    before = len(batches())
    runs.send(400, "few")
    time.sleep(BETWEEN)
    assert len(batches()) == before
    runs.send(2000, "more")
    job.wait(lambda: sum(batches()) <= 1000)
    job.stop()
    runs.run()  # lands what is left, and ends
    runs.check()


def test_they_wait_for_seconds() -> None:
    assert delay_options(3.5, 7) == {"minOffsetsPerTrigger": "7", "maxTriggerDelay": "3500ms"}
    assert delay_options(0, 7) == {}
