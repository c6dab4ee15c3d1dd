"""LAKE__QUARANTINE: by its reason, a record that could not be understood lands, is left out and counted, or stops the job."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from headrace_common.record.contract import Reason, RecordFault
from headrace_lake.configuration.policy import DEFAULT, Policies, Policy
from headrace_lake.landing.landing import Landing
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES, EVENTS
from pyspark.sql import SparkSession

from tests.lake.lander import version
from tests.lake.runs import Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SKIP_MISSING = {"missing_header": "skip"}


def test_each_reason_has_its_policy_and_the_others_the_default(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(reason,) for reason in ("bad_json", "oversized", "of_others")], "reason string")

    def having(setting: dict[str, Policy], policy: Policy) -> list[str]:
        return [reason for (reason,) in rows.where(Policies.of(setting).where(policy)).collect()]

    assert having({}, Policy.LOG) == ["bad_json", "oversized", "of_others"]
    assert having({}, Policy.SKIP) == []
    one = {"bad_json": Policy.SKIP}
    assert (having(one, Policy.SKIP), having(one, Policy.LOG)) == (["bad_json"], ["oversized", "of_others"])
    most = {DEFAULT: Policy.SUSPEND, "oversized": Policy.LOG}
    assert (having(most, Policy.SUSPEND), having(most, Policy.LOG)) == (["bad_json", "of_others"], ["oversized"])
    assert having(most, Policy.SKIP) == []


def settle(runs: Runs, skipped: set[str]) -> Counter[str]:
    """Removes the records with these reasons from what must have landed; returns how many there are of each."""
    gone = {place: reason for place, (_, reason) in runs.sent.quarantined.items() if reason in skipped}
    for place in gone:
        del runs.sent.quarantined[place]
    return Counter(gone.values())


def check(runs: Runs, skipped: int) -> None:
    """Checks that everything expected has landed, and that `batches` counts the skipped records."""
    assert runs.proven()
    (row,) = runs.query("select sum(skipped)::int as skipped, sum(quarantined)::int as quarantined from batches")
    assert row == {"skipped": skipped, "quarantined": len(runs.sent.quarantined)}
    landed = {(r["topic"], r["partition"], r["offset"]) for r in runs.query("select * from quarantine")}
    assert landed == runs.sent.quarantined.keys()
    assert runs.query("select count(*) as n from events") == [{"n": len(runs.sent.events)}]


def test_skipped_records_are_counted_by_reason_and_have_no_row(runs: Runs) -> None:
    runs.send(800)
    runs.run(quarantine={"missing_header": "skip", "bad_json": "skip"})
    gone = settle(runs, {RecordFault.MISSING_HEADER, Reason.BAD_JSON})
    assert set(gone) == {"missing_header", "bad_json"}
    check(runs, gone.total())
    text = runs.metrics.exposition().decode()
    for reason, count in gone.items():
        assert f'headrace_lake_skipped_total{{reason="{reason}"}} {count}.0' in text
    assert f'headrace_lake_quarantined_total{{reason="repeated_header"}} {len(runs.sent.quarantined)}.0' in text
    runs.send(800, mark="b")
    runs.run(quarantine={"default": "skip"})
    gone += settle(runs, {"repeated_header", *gone})  # of the first batch some landed
    (row,) = runs.query("select sum(skipped)::int as n from batches where batch > 0")
    assert row["n"] > 0
    assert runs.proven()


def test_suspend_stops_before_the_batch_and_names_the_record(runs: Runs) -> None:
    topic = runs.kafka.events_topic
    runs.send(800)
    first = min(place for place, (_, reason) in runs.sent.quarantined.items() if reason == "repeated_header")
    suspends = {"repeated_header": "suspend", "oversized": "suspend"}
    with pytest.raises(
        HaltError, match=rf"repeated_header at {topic}/{first[1]} offset {first[2]} and \d+ more in this"
    ):
        runs.run(quarantine=suspends)
    assert version(runs.lake, EVENTS) == transaction(1, 0) - 1  # claimed, nothing else
    with pytest.raises(
        HaltError, match=r"suspends the job for bad_json at .* give these reasons the policy log or skip"
    ):
        runs.run(quarantine={"bad_json": "suspend"})
    runs.run(quarantine={"default": "suspend", "repeated_header": "log", "missing_header": "skip", "bad_json": "log"})
    check(runs, settle(runs, {"missing_header"}).total())
    runs.send(800, mark="b")  # and in the middle: what was landed before stays landed
    with pytest.raises(HaltError, match="suspends the job for missing_header"):
        runs.run(quarantine={"missing_header": "suspend"}, batch_records=400)
    assert runs.proven()


@pytest.mark.parametrize(
    ("method", "before", "after", "loses_checkpoint", "landed"),
    [
        ("_summary", {}, SKIP_MISSING, False, True),
        pytest.param("_summary", SKIP_MISSING, {}, True, True, marks=pytest.mark.full),
        pytest.param("_land_quarantine", {}, SKIP_MISSING, False, False, marks=pytest.mark.full),
    ],
)
def test_a_policy_that_changes_in_the_middle_of_a_batch(
    runs: Runs, method: str, before: dict[str, Any], after: dict[str, Any], loses_checkpoint: bool, landed: bool
) -> None:
    """What quarantine has counts, whatever the policy was when it was written; `landed`: whether it has those records then."""
    runs.send(800)
    runs.killed_at(Landing, method, quarantine=before)
    assert version(runs.lake, EVENTS) > version(runs.lake, BATCHES)
    if loses_checkpoint:
        runs.lose_checkpoint()
    if not landed:
        with pytest.raises(HaltError, match="suspends the job for missing_header"):
            runs.run(quarantine={"missing_header": "suspend"})
    runs.run(quarantine=after)
    check(runs, 0 if landed else settle(runs, {"missing_header"}).total())
