"""Ways to damage a lake: each is healed by the job, or named by the proof. None passes.

One lake is landed; each test damages a copy of it. The copies have the same topics.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure
from headrace_lake.landing.on_spark import OnSpark
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, GAPS, QUARANTINE
from pyspark.sql import SparkSession

from tests.contract.embedded import EmbeddedKafka
from tests.lake.runs import Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A lake of five batches, landed by one job."""
    names = KafkaSettings(
        bootstrap_servers=kafka.bootstrap, events_topic="events.damage", quarantine_topic="quarantine.damage"
    )
    asyncio.run(ensure(names, TopicSettings(events_partitions=4)))
    runs = Runs(spark, names, tmp_path_factory.mktemp("whole"))
    runs.send(1_200)
    runs.run(batch_records=300)
    runs.check()
    return runs


@pytest.fixture
def copy(whole: Runs, tmp_path: Path) -> Runs:
    """A copy of the lake and its checkpoint, to be damaged."""
    made = Runs(whole.spark, whole.kafka, tmp_path)
    shutil.copytree(whole.lake, made.lake)
    shutil.copytree(whole.checkpoint, made.checkpoint)
    made.sent = whole.sent
    return made


def copied(runs: Runs) -> None:
    """Makes each table anew from its own rows, as a copy is made: nothing but rows comes along."""
    for table in (BATCHES, EVENTS, QUARANTINE, DUPLICATES, GAPS):
        old = runs.lake / f"{table}.old"
        (runs.lake / table).rename(old)
        runs.spark.sql(f"create table delta.`{runs.lake / table}` using delta as select * from delta.`{old}`")


def altered_and_restored(runs: Runs) -> None:
    """What docs/lake.md lets an operator do, and a table of batches that is older than the others."""
    before = DeltaTable(str(runs.lake / BATCHES)).version() - 2
    for table, change in (
        (BATCHES, f"restore table TABLE to version as of {before}"),
        (EVENTS, "optimize TABLE zorder by (source, `offset`)"),
        (EVENTS, "alter table TABLE set tblproperties ('delta.dataSkippingStatsColumns' = 'offset')"),
        (EVENTS, "alter table TABLE alter column stream comment 'ours', body comment ''"),
        (BATCHES, "alter table TABLE set tblproperties ('delta.enableChangeDataFeed' = true)"),
        (BATCHES, "alter table TABLE cluster by (topic_id, partition)"),
        (BATCHES, "optimize TABLE"),
    ):
        runs.sql(table, change)


DAMAGES: dict[str, tuple[Callable[[Runs], None], str]] = {
    "made anew by CREATE TABLE AS SELECT": (copied, ""),
    "altered as an operator may, and batches restored": (altered_and_restored, "the last batch that was committed"),
}
"""What is done to a lake, and what the proof says then (empty: nothing is wrong with the rows). The job heals it."""


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_healed_or_said(copy: Runs, name: str) -> None:
    damage, said = DAMAGES[name]
    damage(copy)
    wrong = [f"{row['check']} ({row['detail']})" for row in copy.proof()[:-1] if not row["ok"]]
    assert any(said in each for each in wrong) if said else not wrong, wrong
    copy.run()
    copy.check()


def test_rows_deleted_from_half_a_batch_are_no_duplicates(copy: Runs) -> None:
    """Killed after its events were written; then somebody deletes half of them."""
    copy.sent = replace(copy.sent, events=dict(copy.sent.events), quarantined=dict(copy.sent.quarantined))
    copy.send(400, mark="half")
    copy.killed_at(OnSpark, "quarantine")
    copy.sql(EVENTS, "delete from TABLE where `offset` >= 300 and `offset` % 2 = 0")
    copy.run()
    copy.check()
