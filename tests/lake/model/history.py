"""A history: producers, jobs, kills and changes of topics, all from one seed; and what must be true when it is over."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from random import Random

from headrace_lake.spark.halt import GapError, HaltError, KafkaAwayError, PartitionsAddedError, SupersededError
from headrace_lake.tables.layout import BATCHES
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.layout import QUARANTINE as QUARANTINE_TABLE
from pyspark.errors import PySparkException

from tests.contract.waiting import there
from tests.lake.model.job import SLACK, Run, World, eraser, replay
from tests.lake.model.judge import Judge
from tests.lake.model.lists import HORIZON, Place, covers, place_of
from tests.lake.model.prover import contradictions
from tests.lake.model.stage import Process, Stage
from tests.lake.model.tables import Disk
from tests.lake.model.topics import EVENTS, QUARANTINE, Kafka, Record

JOB = "job"
STEP = 0.05
"""Seconds that a step takes."""
MOST_STEPS = 20_000
OF_ERASING = ("nothing is there that was erased", "all of it")
"""How contradictions begin that an unfinished erasure causes, and the line that sums up."""
ATTEMPTS = 40
"""Starts of a job, by its supervisor or its operator, until it must have landed everything."""


class History:
    """`proven`: the command line's proof is asked in its middle and at its end, which takes four times as long as all else."""

    def __init__(self, seed: int, *, proven: bool = False) -> None:
        self.proven = proven or seed % 10 == 0
        self.whether = Random(~seed)
        """Decides about the proof, so that a history is the same with and without it."""
        self.chance = Random(seed)
        self.stage = Stage(self.chance)
        self.kafka = Kafka()
        self.disk = Disk(self.stage.step, lambda: self.world.clock, lambda: self.world.now())
        self.world = World(self.kafka, self.disk, self.stage.step, self.chance.random)
        self.world.beside = self.beside
        self.world.retention_days = self.chance.choice((0, 1, 1, 2))
        self.failures: list[str] = []
        self.trace: list[str] = []
        self.ids = 0
        self.sent: list[Record] = []
        self.jobs: dict[str, Process] = {}
        self.erasers: list[Process] = []
        self.erased = 0
        """Erasers that have ended well."""
        self.replays: list[Process] = []
        self.most = self.chance.choice((3, 10, 40))
        self.late = self.chance.choice((0.01, 0.05, 0.3))
        """How soon a dead job's write is committed: the chance in each step."""
        self.silent = self.chance.choice(("", "", EVENTS, QUARANTINE))
        """A topic that gets nothing at first."""

    def run(self) -> list[str]:
        """Returns what was wrong."""
        with self.world.in_place():
            self.kafka.make(EVENTS, self.chance.randint(1, 3))
            self.kafka.make(QUARANTINE, self.chance.randint(1, 2))
            self.world.make_lake()
            self.produce()
            self.begin()
            weights = [often * self.chance.choice((0, 1, 1, 5)) for often in ACTIONS.values()]
            weights[0] += 1
            for left in reversed(range(self.chance.randint(2, 14))):
                self.silent = self.silent if left > 3 else ""
                self.pass_time(self.chance.choice((1, 3, 10, 30, 100, 300)))
                action = self.chance.choices(list(ACTIONS), weights)[0]
                self.say(action.__name__)
                action(self)
                if self.proven and self.whether.random() < 0.1 and not self.world.lost:
                    self.prove()
            self.end()
        return self.failures

    def say(self, what: str) -> None:
        self.trace.append(f"{self.stage.steps}: {what}")

    def pass_time(self, steps: int) -> None:
        for _ in range(steps):
            self.world.steps = self.stage.steps
            self.world.clock += STEP
            if self.world.orphans and self.chance.random() < self.late:
                self.commit_late()
            if not self.stage.turn():
                self.stage.steps += 1

    def commit_late(self) -> None:
        commit = self.world.orphans.pop(self.chance.randrange(len(self.world.orphans)))
        try:
            commit()
            self.say("a dead job's write is committed")
        except PySparkException:
            self.say("a dead job's write is refused")

    # Jobs

    def begin(self, name: str = JOB) -> None:
        self.jobs[name] = self.stage.start(name, lambda: self.supervise(name))

    def supervise(self, name: str) -> None:
        """Starts the job again, as its supervisor does, and does what its last words ask the operator to do."""
        accept_loss = False
        for _ in range(ATTEMPTS):
            try:
                Run(self.world, accept_loss=accept_loss, most=self.most).land()
                self.say(f"{name}: landed all")
                return
            except (KafkaAwayError, PartitionsAddedError):
                self.stage.step()
            except HaltError as error:
                self.halted(name, error)
                accept_loss = accept_loss or isinstance(error, GapError)
                if isinstance(error, SupersededError) and name != JOB:
                    return
            except Exception as error:
                self.failed(name, error)
                return

    def failed(self, name: str, error: Exception) -> None:
        self.failures.append(f"{name}: {error!r}")
        self.trace += traceback.format_exc().splitlines()

    def beside(self, body: Callable[[], None]) -> Process:
        """What a job does beside landing, in its process."""
        job = there(self.stage.on)
        job.threads.append(self.stage.start(f"beside {job.name}", lambda: self.once(f"beside {job.name}", body)))
        return job.threads[-1]

    def once(self, name: str, body: Callable[[], object]) -> None:
        """What is not started again."""
        try:
            body()
            self.say(f"{name}: done")
        except (HaltError, KafkaAwayError) as error:
            self.halted(name, error)
        except Exception as error:
            self.failed(name, error)

    def halted(self, name: str, error: Exception) -> None:
        self.say(f"{name}: {error}")
        if "was not committed" in str(error) or "too busy" in str(error):
            self.failures.append(f"{name} stopped: {error}")

    # What happens

    def produce(self) -> None:
        """Some records: new events, events that are sent again, records that are none, aborted ones."""
        only = self.chance.choice((None, EVENTS, QUARANTINE))
        for _ in range(self.chance.randint(1, 60)):
            name = only or self.chance.choice((EVENTS, EVENTS, EVENTS, QUARANTINE))
            if name == self.silent:
                continue
            topic = self.kafka.topics[name]
            partition = topic.partitions[0] if only else self.chance.choice(topic.partitions)
            time = int((self.world.clock - self.chance.choice((0, 0, 0, self.chance.uniform(0, SLACK)))) * 1000)
            kind = self.chance.random()
            if kind < 0.05:
                partition.end += 1
            elif kind < 0.15 or topic is self.kafka.topics[QUARANTINE]:
                partition.append(time, "")
            elif kind < 0.35 and self.sent and abs(self.sent[-1].time - time) <= HORIZON * 1000:
                near = [record for record in self.sent[-50:] if abs(record.time - time) <= HORIZON * 1000]
                partition.append(time, self.chance.choice(near).id)
            else:
                self.ids += 1
                partition.append(time, f"d.{self.ids}")
                self.sent.append(partition.records[-1])
        for job, process in list(self.jobs.items()):
            if process.dead and self.chance.random() < 0.7:
                self.begin(job)

    def kill(self) -> None:
        name = self.chance.choice(list(self.jobs))
        self.stage.kill(self.jobs[name])
        self.pass_time(self.chance.choice((0, 0, 20)))
        self.begin(name)

    def kill_often(self) -> None:
        for _ in range(self.chance.randint(2, 8)):
            self.kill()
            self.pass_time(self.chance.randint(1, 60))

    def freeze(self) -> None:
        self.chance.choice(list(self.jobs.values())).frozen_until = self.stage.steps + self.chance.choice((50, 400))

    def begin_another(self) -> None:
        """Another job on the same tables: one that is started again whenever it is shut out, or one that gives up."""
        if self.chance.random() < 0.6:
            self.stage.start("twin", lambda: self.supervise(JOB))
        else:
            self.begin(f"other-{len(self.jobs)}")

    def kafka_away(self) -> None:
        self.kafka.away_until = self.stage.steps + self.chance.choice((5, 60))

    def erase(self) -> None:
        """Some rows are erased, or what earlier erasures have left; the one before may be killed."""
        if self.erasers and self.chance.random() < 0.3:
            self.stage.kill(self.chance.choice(self.erasers))
        rows = [row for name in (EVENTS_TABLE, QUARANTINE_TABLE) for row in self.disk.table(name).rows]
        some = self.chance.sample(rows, min(len(rows), self.chance.choice((0, 1, 5, 5))))
        self.erasers.append(self.start_eraser({place_of(row) for row in some}))

    def start_eraser(self, wanted: set[Place]) -> Process:
        def body() -> None:
            eraser(self.world, wanted).run()
            self.erased += 1

        return self.stage.start("eraser", lambda: self.once("eraser", body))

    def replay(self) -> None:
        """What the tables lack lands again; mostly the job stands still before, and goes on afterwards."""
        stops = self.chance.random() < 0.8
        if self.chance.random() < 0.7:
            self.lose_rows()
        if stops:
            self.stage.kill(self.jobs[JOB])
        self.pass_time(self.chance.choice((0, 0, 20)))
        for process in self.replays:
            self.stage.kill(process)
        body = partial(replay, self.world)
        self.replays.append(self.stage.start("replay", lambda: self.once("replay", body)))
        self.pass_time(self.chance.choice((0, 30, 100, 300)))
        if stops:
            self.begin()

    def lose_rows(self) -> None:
        """Somebody deletes rows of batches."""
        lines = self.disk.table(BATCHES).rows
        for name in (EVENTS_TABLE, QUARANTINE_TABLE):
            table = self.disk.tables.get(name)
            for file, rows in list(table.files.items()) if table and self.chance.random() < 0.6 else ():
                gone = [
                    row
                    for row in rows
                    if self.chance.random() < 0.3 and any(covers(line, place_of(row)) for line in lines)
                ]
                if gone:
                    rest = [row for row in rows if row not in gone]
                    table.begin().commit(rest, removed=[file], moves=True)  # type: ignore[union-attr]
                    self.world.lost.update((name, place_of(row)) for row in gone)

    def expire(self) -> None:
        """Kafka deletes what is old."""
        for topic in self.kafka.topics.values():
            for partition in topic.partitions:
                if self.chance.random() < 0.5:
                    partition.start = self.chance.randint(partition.start, partition.end)

    def recreate(self) -> None:
        self.kafka.make(self.chance.choice((EVENTS, QUARANTINE)), self.chance.randint(1, 3))

    def add_partition(self) -> None:
        topic = self.kafka.topics[self.chance.choice((EVENTS, QUARANTINE))]
        topic.partitions.append(type(topic.partitions[0])())

    def idle(self) -> None:
        self.world.clock += self.chance.choice((60, 3_600, 86_400, 3 * 86_400))

    def move_clock(self) -> None:
        """The job's own clock goes wrong, or right again."""
        self.world.ahead = self.chance.choice((0, 0, 3_600, -3_600, 7_200, 2 * 365 * 86_400))

    def prove(self) -> None:
        """The proof must hold now; but rows may be there that an erasure has listed which goes on, or did not end well."""
        found = contradictions(self.disk, self.world.clock)
        if self.erased < len(self.erasers):
            found = [each for each in found if not each.startswith(OF_ERASING)]
        self.failures += [f"the proof: {each}" for each in found]

    # The end

    def end(self) -> None:
        """No fault any more: one job for each lake lands the rest."""
        for process in self.stage.processes:
            self.stage.kill(process)
        self.erasers.clear()
        while self.world.orphans:
            if self.chance.random() < 0.5:
                self.commit_late()
            else:
                self.world.orphans.pop()
        self.kafka.away_until = 0
        self.say("the last run")
        self.last(self.stage.start("last", lambda: self.supervise(JOB)))
        if self.world.lost:
            self.last(self.stage.start("replay", lambda: self.once("replay", self.last_replay)))
            self.last(self.stage.start("last", lambda: self.supervise(JOB)))
        self.last(self.start_eraser(set()))
        judge = Judge(self.world)
        self.failures += judge.faults()
        if self.proven and judge.whole():
            self.prove()

    def last_replay(self) -> None:
        """Notes what it leaves: the rows before the first line that it takes."""
        lines = self.disk.table(BATCHES).rows
        first = replay(self.world)
        taken = [line for line in lines if first is not None and line["number"] >= first]
        for name, place in self.world.lost:
            if not any(covers(line, place) for line in taken):
                self.world.left.add((name, place))

    def last(self, process: Process) -> None:
        """Nothing disturbs it."""
        limit = self.stage.steps + MOST_STEPS
        while not all(each.dead for each in (process, *process.threads)) and self.stage.steps < limit:
            self.pass_time(1)
        if not process.dead:
            self.failures.append(f"{process.name}: the last run does not end")
        self.stage.kill(process)


ACTIONS: dict[Callable[[History], None], int] = {
    History.produce: 10,
    History.kill: 8,
    History.kill_often: 4,
    History.freeze: 3,
    History.begin_another: 4,
    History.kafka_away: 2,
    History.erase: 6,
    History.expire: 2,
    History.recreate: 1,
    History.add_partition: 2,
    History.idle: 4,
    History.move_clock: 3,
    History.replay: 3,
}
"""What may happen, and how often. Each history prefers some of it, and leaves some out."""
