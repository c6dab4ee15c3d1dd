"""Ways to damage a lake: each is healed by the job, stops it with a sentence that helps, or is named by the proof. None passes.

One lake is landed; each test damages a copy of it. The copies have the same topics.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_cli.ground import CommandError
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure
from headrace_lake.landing.on_spark import OnSpark
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, GAPS, QUARANTINE
from pyspark.sql import SparkSession

from tests.contract.embedded import EmbeddedKafka
from tests.lake.runs import Runs
from tests.tiers import sized

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


def wrong(runs: Runs) -> str:
    """What the proof says against the lake; empty if it holds."""
    try:
        return "; ".join(f"{row['check']} ({row['detail']})" for row in runs.proof()[:-1] if not row["ok"])
    except CommandError as error:
        return str(error)


def data_files(runs: Runs) -> list[Path]:
    return sorted((runs.lake / EVENTS).glob("day=*/*.parquet"))


def swap_files(runs: Runs) -> None:
    """Two data files change places."""
    first, second = data_files(runs)[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def of_one_partition(runs: Runs) -> None:
    for table in (EVENTS, QUARANTINE, BATCHES):
        runs.sql(table, "delete from TABLE where topic like 'events%' and partition = 1")


def copied(runs: Runs) -> None:
    """Makes each table anew from its own rows, as a copy is made: nothing but rows comes along."""
    for table in (BATCHES, EVENTS, QUARANTINE, DUPLICATES, GAPS):
        old = runs.lake / f"{table}.old"
        (runs.lake / table).rename(old)
        runs.spark.sql(f"create table delta.`{runs.lake / table}` using delta as select * from delta.`{old}`")


def restored(runs: Runs, table: str, back: int) -> None:
    runs.sql(table, f"restore table TABLE to version as of {DeltaTable(str(runs.lake / table)).version() - back}")


def repaired_and_replayed(runs: Runs) -> None:
    DeltaTable(str(runs.lake / EVENTS)).repair()
    runs.replay()


def restored_and_replayed(runs: Runs) -> None:
    restored(runs, BATCHES, 1)
    runs.replay()


def altered(runs: Runs) -> None:
    """What docs/lake.md lets an operator do."""
    for table, change in (
        (EVENTS, "optimize TABLE zorder by (source, `offset`)"),
        (EVENTS, "alter table TABLE set tblproperties ('delta.dataSkippingStatsColumns' = 'offset')"),
        (EVENTS, "alter table TABLE alter column stream comment 'ours', body comment ''"),
        (BATCHES, "alter table TABLE set tblproperties ('delta.enableChangeDataFeed' = true)"),
        (BATCHES, "alter table TABLE cluster by (topic_id, partition)"),
        (BATCHES, "optimize TABLE"),
    ):
        runs.sql(table, change)


@dataclass(frozen=True)
class Damage:
    """What is done to a lake, and what must come of it: without `stops` and `helps` the job heals it."""

    does: Callable[[Runs], Any]
    proof: str = ""
    """What the proof says; empty: nothing is wrong with the rows."""
    stops: str = ""
    """What the job says when it stops; empty: it does not."""
    helps: Callable[[Runs], Any] | None = None
    """What the job or docs/lake-operate.md advise against it."""


DAMAGES: dict[str, Damage] = {
    "rows of one partition deleted everywhere": Damage(
        of_one_partition, proof="no row of batches is missing", helps=restored_and_replayed,
    ),
    "made anew by CREATE TABLE AS SELECT": Damage(copied),
    "batches restored": Damage(lambda runs: restored(runs, BATCHES, 2), proof="the last batch that was committed"),
}  # fmt: skip

MORE_DAMAGES: dict[str, Damage] = {
    "a hole in batches, and the version before it restored": Damage(
        lambda runs: runs.sql(BATCHES, "delete from TABLE where batch = 1"), proof="no row of batches is missing",
        helps=lambda runs: restored(runs, BATCHES, 1),
    ),
    "events dropped, and replayed": Damage(
        lambda runs: shutil.rmtree(runs.lake / EVENTS), proof="no table events", helps=Runs.replay
    ),
    "a data file lost, taken out of the log, and replayed": Damage(
        lambda runs: data_files(runs)[0].unlink(), proof="cannot be read", helps=repaired_and_replayed,
        stops="does not exist: .*parquet|parquet does not exist",
    ),
    "events doubled, and the version before restored": Damage(
        lambda runs: runs.sql(EVENTS, "insert into TABLE select * from TABLE"), proof="each record of a range",
        helps=lambda runs: restored(runs, EVENTS, 1),
    ),
    "two data files swapped": Damage(swap_files, stops="Checksum error: .*parquet"),
    "altered as an operator may": Damage(altered),
}  # fmt: skip
"""The full tier has these, too."""


@pytest.mark.parametrize("name", DAMAGES | (MORE_DAMAGES if sized(False, False, True) else {}))
def test_damage_is_healed_or_said(copy: Runs, name: str) -> None:
    damage = (DAMAGES | MORE_DAMAGES)[name]
    damage.does(copy)
    found = wrong(copy)
    assert re.search(damage.proof, found) if damage.proof else not found, found
    if damage.stops:
        with pytest.raises(HaltError, match=damage.stops):
            copy.run()
    if damage.helps is not None:
        damage.helps(copy)
    if damage.helps is not None or not damage.stops:
        copy.run()
        copy.check()


def test_rows_deleted_from_a_batch_half_done_are_not_taken_for_duplicates(copy: Runs) -> None:
    """Killed after its events were written; then somebody deletes half of them."""
    copy.sent = replace(copy.sent, events=dict(copy.sent.events), quarantined=dict(copy.sent.quarantined))
    copy.send(400, mark="half")
    copy.killed_at(OnSpark, "quarantine")
    copy.sql(EVENTS, "delete from TABLE where `offset` >= 300 and `offset` % 2 = 0")
    copy.run()
    copy.check()
