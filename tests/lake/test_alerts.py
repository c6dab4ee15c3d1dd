"""A landing job is driven into the states that alerts are about, and the rules are evaluated over what it says then."""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import TopicSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.stopping import stopped
from tests.contract.topic import own_topics
from tests.contract.waiting import wait_for
from tests.faults.stack import CLOCK
from tests.lake.lander import TIMEOUT, Bench
from tests.lake.stream import PARTITIONS, send_now
from tests.scrapes import NOBODY, Page, firing

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.requires("promtool")]

LAG = r"^headrace_lake_lag_offsets\{.*\} ([0-9.e+]+)$"
DOUBTS = "headrace_lake_clocks_disagree 1.0"


@pytest.fixture
def bench(own_kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Bench]:
    topics = TopicSettings(events_partitions=PARTITIONS, segments_partitions=0)
    made = Bench(own_topics(own_kafka.bootstrap, topics), tmp_path)
    yield made
    made.stop()


def test_a_clock_that_is_wrong_one_that_lands_nothing_one_that_knows_no_lag_and_one_that_is_gone(
    bench: Bench, own_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    def fires(*pages: Page) -> set[str]:
        return firing(["headrace-lake"], "lake", pages, tmp_path)

    send_now(bench.kafka, bench.sent, 800)
    clock = tmp_path / "clock"  # by how many seconds the job's own is ahead
    clock.write_text("0")
    job = bench.start(
        trigger=3600,  # after its first batch it lands nothing for an hour
        variables={"HEADRACE_TEST_CLOCK": str(clock), "PYTHONPATH": os.pathsep.join((str(CLOCK), *sys.path))},
    )
    port = job.next("starting")["ops_port"]

    def page() -> Page:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT) as answer:
            return Page(answer.read().decode())

    def lag() -> list[float]:
        return [float(found) for found in re.findall(LAG, page().text, re.MULTILINE)]

    def once(condition: Callable[[], bool], what: str) -> Page:
        wait_for(condition, what, TIMEOUT)
        return page()

    job.next("landed")
    landed = once(lambda: len(lag()) > PARTITIONS and sum(lag()) == 0, "all has landed")
    clock.write_text("1000")
    ahead = once(lambda: DOUBTS in page().text, "its clock is wrong")
    clock.write_text("0")
    right = once(lambda: DOUBTS not in page().text, "its clock is right again")
    send_now(bench.kafka, bench.sent, 800, mark="b")
    behind = once(lambda: sum(lag()) >= 800, "it is behind")
    with stopped(own_kafka.pid):
        unknown = once(lambda: lag() == [], "its lag is unknown")
    job.kill()

    assert "HeadraceLakeClocksDisagree" in fires(landed, ahead)
    assert "HeadraceLakeClocksDisagree" not in fires(ahead, right)
    assert "HeadraceLakeStandsStill" not in fires(landed, landed)
    assert "HeadraceLakeStandsStill" in fires(landed, behind)
    found = fires(behind, unknown)
    assert "HeadraceLakeLagUnknown" in found
    assert "HeadraceLakeStandsStill" not in found
    assert {"HeadraceLakeAbsent", "HeadraceLakeGone"} <= fires(behind, NOBODY)
    assert not {"HeadraceLakeAbsent", "HeadraceLakeGone", "HeadraceLakeLagUnknown"} & fires(landed, behind)
