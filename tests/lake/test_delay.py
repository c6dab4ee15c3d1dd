"""Few records wait for more, at most for LAKE__DELAY: a batch costs the same whatever is in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from headrace_lake.configuration.settings import LakeSettings

from tests.contract.waiting import wait_for
from tests.lake.runs import Runs

BETWEEN = 2.0
"""Seconds in which the job looks several times, and lands what does not wait."""


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize(("delay", "waits"), [(3600, True), (0.1, False)])
def test_few_records_wait_until_they_are_enough(
    runs: Runs, delay: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LakeSettings, "least_records", 1000)

    def batches() -> list[int]:
        return [row["records"] for row in runs.query("select records from batches where records > 0 order by batch")]

    job = runs.job(once=False, delay=delay)
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(job.run)

        def lands(what: str, found: Callable[[], bool]) -> None:
            wait_for(lambda: ran.done() or found(), what)

        try:
            runs.send(400, "first")
            lands("the first batch waits for nothing", lambda: bool(batches()))
            time.sleep(BETWEEN)
            before = len(batches())
            runs.send(400, "few")
            if waits:
                time.sleep(BETWEEN)
                assert len(batches()) == before
            else:
                lands("they do not wait", lambda: len(batches()) > before)
            runs.send(2000, "more")
            lands("they are enough", lambda: sum(batches()) > 1000)
        finally:
            job.stop()
        ran.result()
    runs.run()  # lands what is left, and ends
    runs.check()
