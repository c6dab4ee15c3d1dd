"""Histories of the landing job without Spark: none breaks exactly once, and a job that lacks one of its checks does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from unittest import mock

import pytest
from headrace_lake.commands.erase import Erase
from headrace_lake.commands.replay import Limits
from headrace_lake.kafka import claim, unlanded
from headrace_lake.kafka.start import Position
from headrace_lake.tables import fence
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.on_spark import Line, Tables
from headrace_lake.tables.transaction_log import LiveFiles
from headrace_lake.upkeep import retention
from headrace_lake.upkeep.clocks import ClockGuard

from tests.lake.model.history import MOST_STEPS, History
from tests.lake.model.job import SLACK, Run, replay
from tests.lake.model.lists import HORIZON, Lists
from tests.lake.model.stage import Process
from tests.lake.model.tables import Table
from tests.lake.model.topics import EVENTS, QUARANTINE
from tests.tiers import sized

EACH = 50
"""Histories of one test: so that workers share them."""


def _only_landed(position: Position, ranges: Any) -> None:
    for topic, partition, _, end in ranges:
        position.landed[topic, partition] = end


def _dropped_without_a_word(tables: Tables, name: str, _: LiveFiles, first: date) -> None:
    tables.delete_days(name, first)


def _listed_anyway(self: Erase, _: int) -> bool:
    return _list(self, self._rows.erasures() + 1)


def _without_the_horizon(*asked: Any) -> int:
    return _oldest(*asked) + round((HORIZON + SLACK) * 1000)


def _claimed_anyway(self: Fence, name: str, epoch: int, rows: Any = None, _: int | None = None) -> bool:
    return _claim_in(self, name, epoch, rows)


_claim_in = Fence._claim_in
_list = Erase._list
_oldest = unlanded.oldest_to_come
MUTANTS: dict[str, tuple[Any, str, Callable[..., Any] | str, int]] = {
    "rows of a job that was shut out are landed again": (Position, "has_strays", lambda *_: False, 3),
    "rows of a job that was shut out are not noted": (claim, "strays", lambda *_: {}, 3),
    "a batch is not counted": (Position, "add", _only_landed, 3),
    "an older job's write is not noticed": (fence, "not_past", lambda *_: None, 17),
    "the events table is not claimed": (fence, "EVENTS", "batches", 3),
    "ids are read since the oldest record alone": (unlanded, "oldest_to_come", _without_the_horizon, 3),
    "the ids of the table are not read": (unlanded, "oldest_to_come", lambda *_: 1 << 60, 3),
    "days are dropped without a transaction": (retention, "drop", _dropped_without_a_word, 294),
    "clocks are not compared": (ClockGuard, "agree", lambda *_: True, 18),
    "a loss is accepted though another job has landed since": (Fence, "_claim_in", _claimed_anyway, 131),
}  # fmt: skip
"""What is taken away, and a seed that finds it."""


@pytest.mark.parametrize("first", range(0, sized(50, 100, 10_000), EACH))
def test_no_history_breaks_exactly_once(first: int) -> None:
    failed = {seed: found for seed in range(first, first + EACH) if (found := History(seed).run())}
    assert not failed, f"python -m tests.lake.model --seed {min(failed)}"


def test_a_seed_means_the_same_each_time() -> None:
    for seed in range(5):
        one, other = History(seed), History(seed)
        assert one.run() == other.run()
        assert one.trace == other.trace


@pytest.mark.parametrize("name", MUTANTS)
def test_a_job_that_lacks_a_check_is_found(name: str) -> None:
    where, attribute, instead, seed = MUTANTS[name]
    with mock.patch.object(where, attribute, instead):
        assert History(seed).run()
    assert not History(seed).run()


class Script(History):
    """A lake of its own, and jobs that take the steps that a test names."""

    def __init__(self) -> None:
        super().__init__(0)
        self.proven = False
        self.most = 100

    def send(self, topic: str, partition: int, *ids: str) -> None:
        for name in ids:
            self.kafka.topics[topic].partitions[partition].append(int(self.world.clock * 1000), name)

    def start(self, name: str = "before") -> Process:
        return self.stage.start(name, lambda: self.supervise(name))

    def take(self, process: Process, steps: int) -> None:
        """It takes `steps`, or all that it has, and then stands still."""
        for each in self.stage.processes:
            each.frozen_until = 0 if each is process else 1 << 40
        while steps and not process.dead:
            self.world.clock += 0.05
            self.stage.turn()
            steps -= 1

    def finish(self, process: Process) -> None:
        self.take(process, MOST_STEPS)

    def land(self) -> None:
        """A whole run of a job."""
        self.finish(self.start())

    def killed_behind_its_events(self) -> None:
        """A run that is killed when it has written the events of a batch."""
        job = self.start()
        self.behind_its_events(job)
        self.stage.kill(job)

    def killed_behind_events_of_an_added_partition(self) -> None:
        """The same, of a partition that the topic gets while the job runs."""
        self.send(EVENTS, 0, "d.0")
        job, topic = self.start(), self.kafka.topics[EVENTS]
        self.behind_its_events(job)
        topic.partitions.append(type(topic.partitions[0])())
        self.send(EVENTS, len(topic.partitions) - 1, "d.1", "d.2")
        self.behind_its_events(job)
        self.stage.kill(job)

    def behind_its_events(self, job: Process) -> None:
        before = len(self.table(EVENTS_TABLE).rows)
        while len(self.table(EVENTS_TABLE).rows) == before:
            self.take(job, 1)

    def table(self, name: str) -> Table:
        return self.disk.table(name)

    def lost(self) -> list[tuple[Any, ...]]:
        columns = ("reason", "topic_id", "partition", "from", "to", "rows")
        return [tuple(row[name] for name in columns) for row in self.table("gaps").rows]

    def remade(self, topic: str, partitions: int) -> None:
        self.kafka.make(topic, partitions)

    def expired(self, topic: str, partition: int, start: int) -> None:
        self.kafka.topics[topic].partitions[partition].start = start


@contextlib.contextmanager
def played(*, proven: bool = False, retention_days: int = 1) -> Iterator[Script]:
    """A lake in which something has landed; after what happens in the block the rest is landed, and judged."""
    script = Script()
    script.world.chance = lambda: 0.0
    script.world.retention_days = retention_days
    with script.world.in_place():
        script.kafka.make(EVENTS, 2)
        script.kafka.make(QUARANTINE, 1)
        script.world.make_lake()
        script.send(QUARANTINE, 0, "", "", "")
        script.land()
        yield script
        for name in ("a", "b"):
            script.jobs[name] = script.stage.start(name, lambda: None)
        script.proven = proven
        script.end()


def erased_while_files_are_merged(steps: int) -> list[str]:
    """Maintenance pauses after `steps`, and goes on once an erasure has replaced some of the files."""
    with played(retention_days=0) as script:
        for number in range(3):
            script.send(EVENTS, 0, f"d.{number}", f"d.{number}a")
            script.land()
        script.world.clock += 86_400
        job = Run(script.world, accept_loss=False, most=100)
        merging = script.stage.start("maintenance", lambda: job.maintain(4))
        script.take(merging, steps)
        script.finish(script.start_eraser({("id1", 0, 0)}))
        script.finish(merging)
    return script.failures


def erased_by_two(steps: int) -> list[str]:
    """An erasure stands still after `steps`, and goes on once another has listed the same row."""
    with played() as script:
        script.send(EVENTS, 0, "d.1", "d.2")
        script.land()
        script.finish(script.start_eraser({("id1", 0, 1)}))
        first = script.start_eraser({("id1", 0, 0)})
        script.take(first, steps)
        script.finish(script.start_eraser({("id1", 0, 0)}))
        script.finish(first)
    return script.failures


def sent_again_while_a_job_starts(steps: int) -> list[str]:
    """The topic was recreated, and the job's clock is two hours ahead."""
    with played() as script:
        script.send(EVENTS, 0, "d.1")
        script.land()
        script.remade(EVENTS, 1)
        script.world.ahead = 7200
        job = script.start()
        script.take(job, steps)
        script.send(EVENTS, 0, "d.1")
        script.finish(job)
    return script.failures


SCRIPTS: dict[Callable[[int], list[str]], tuple[Any, str, Callable[..., Any], int]] = {
    erased_while_files_are_merged: (LiveFiles, "has", lambda *_: True, 45),
    erased_by_two: (Erase, "_list", _listed_anyway, 37),
    sent_again_while_a_job_starts: (Lists, "newest_event", lambda _: 1 << 60, 120),
}  # fmt: skip
"""What happens at any step, what of the job it needs to be harmless, and a step at which it would do harm."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_at_any_step(script: Callable[[int], list[str]]) -> None:
    where, attribute, instead, harmful = SCRIPTS[script]
    for steps in sized([harmful], [*range(0, 100, 4), harmful], range(160)):
        assert (steps, script(steps)) == (steps, [])
    with mock.patch.object(where, attribute, instead):
        assert script(harmful)


def erased(script: Script, offset: int) -> None:
    script.finish(script.start_eraser({("id1", 0, offset)}))


LAND, KILLED = (Script.land,), (Script.killed_behind_its_events,)
LOSSES: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "of a topic of which nothing has landed": (
        [(Script.send, EVENTS, 1, "d.1", "d.2"), (Script.expired, EVENTS, 1, 1), LAND],
        [("retention", "id1", 1, 0, 1, 0)],
    ),
    "of a topic that was recreated, and of which nothing has landed yet": (
        [
            (Script.send, EVENTS, 0, "d.1"), LAND, (Script.remade, EVENTS, 1), LAND,
            (Script.send, EVENTS, 0, "d.2", "d.3"), (Script.expired, EVENTS, 0, 1), LAND,
        ],
        [("recreated", "id1", 0, 1, None, 0), ("recreated", "id1", 1, 0, None, 0), ("retention", "id3", 0, 0, 1, 0)],
    ),
    "of a recreated topic, behind a loss that was accepted before": (
        [(Script.send, QUARANTINE, 0, "", ""), (Script.expired, QUARANTINE, 0, 5), LAND, (Script.remade, QUARANTINE, 1), LAND],
        [("retention", "id2", 0, 3, 5, 0), ("recreated", "id2", 0, 5, None, 0)],
    ),
    "behind which the job goes on": (
        [
            (Script.send, EVENTS, 0, "d.1", "d.2"), LAND, (Script.send, EVENTS, 0, "d.3", "d.4", "d.5"),
            (Script.expired, EVENTS, 0, 4), LAND,
        ],
        [("retention", "id1", 0, 2, 4, 0)],
    ),
    "of a batch half done, of which a row was erased before": (
        [(Script.send, EVENTS, 0, "d.1", "d.2", "d.3"), KILLED, (erased, 0), (Script.expired, EVENTS, 0, 3), LAND],
        [("retention", "id1", 0, 0, 3, 3)],
    ),
    "of what a kill left of a partition that was never landed": (
        [(Script.send, EVENTS, 1, "d.1", "d.2"), KILLED, (Script.remade, EVENTS, 2), LAND],
        [("recreated", "id1", 0, 0, None, 0), ("recreated", "id1", 1, 0, None, 2)],
    ),
    "of the same, if it was added while the job ran": (
        [(Script.killed_behind_events_of_an_added_partition,), (Script.remade, EVENTS, 2), LAND],
        [("recreated", "id1", 0, 1, None, 0), ("recreated", "id1", 1, 0, None, 0), ("recreated", "id1", 2, 0, None, 2)],
    ),
    "of the same beside one that was": (
        [
            (Script.send, EVENTS, 0, "d.0"), LAND, (Script.send, EVENTS, 1, "d.1", "d.2"), KILLED,
            (Script.remade, EVENTS, 2), LAND,
        ],
        [("recreated", "id1", 0, 1, None, 0), ("recreated", "id1", 1, 0, None, 2)],
    ),
}  # fmt: skip
"""What Kafka deletes before it has landed: the steps of a script, and the gaps that come of it."""


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_known_exactly(name: str) -> None:
    steps, gaps = LOSSES[name]
    with played(proven=True) as script:
        for step, *given in steps:
            step(script, *given)
    assert script.failures == []
    assert script.lost() == gaps
    stops = [line for line in script.trace if "before: " in line and "landed all" not in line]
    assert all("Kafka no longer holds" in line for line in stops), "and goes on behind it"
    assert len(stops) <= len({gap[:2] for gap in gaps}), "once each"


OLD, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 5, 6, tzinfo=UTC)
USUAL: dict[str, Any] = {
    "end": 8, "topic_id": "id1", "strays": None, "earliest": 5, "since": OLD, "kept_from": OLD, "gaps": 0,
}  # fmt: skip
BACK: dict[str, tuple[dict[str, Any], str | None]] = {
    "it can": ({}, None),
    "it landed before": ({"since": NOW}, ""),
    "the partition begins there": ({"end": 5}, "its first claim"),
    "a note of rows that a job left": ({"end": 5, "strays": 9}, None),
    "another topic": ({"topic_id": "id2"}, "Kafka no longer has that topic"),
    "deleted by Kafka": ({"earliest": 6}, "Kafka no longer holds it"),
    "before a gap": ({"gaps": 4}, "a loss was accepted since"),
    "in the job of a gap": ({"gaps": 3}, None),
    "a day that was dropped": ({"kept_from": NOW}, "the tables no longer keep that day (LAKE__RETENTION_DAYS)"),
}


@pytest.mark.parametrize("name", BACK)
def test_a_replay_goes_back_where_a_job_can_begin(name: str) -> None:
    given, why = BACK[name]
    given = USUAL | given
    limits = Limits(given["since"], given["kept_from"], given["gaps"], {("id1", 0): given["earliest"]})
    line = Line("e", given["topic_id"], 0, 5, given["end"], NOW - timedelta(1), 3, given["strays"], 7)
    assert limits.refuse(line) == (f"e/0 from 5 on: {why}" if why else why)


def test_a_replay_of_nothing_hides_no_killed_jobs_rest() -> None:
    with played() as script:
        script.expired(QUARANTINE, 0, 3)
        script.send(EVENTS, 0, "d.1")
        script.killed_behind_its_events()
        script.finish(script.stage.start("replay", lambda: script.once("replay", partial(replay, script.world))))
        script.prove()
    assert script.failures == []
