"""Runs of the job on the test's own lake: in the test's own process, or in processes of theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.commands.erase import Erase, ErasureRequest, ErasureResult
from headrace_lake.commands.erase_rows import ErasureRows
from headrace_lake.commands.replay import go_back
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.job import Job
from headrace_lake.kafka.source import Brokers
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.layout import EVENTS
from headrace_lake.tables.on_spark import Tables
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import LakeHealth
from headrace_reader.proof import exactly_once
from pyspark.sql import SparkSession
from structlog.testing import CapturingLogger

from tests.constants import constants, parted
from tests.lake.lander import TIMEOUT, Lander
from tests.lake.stream import Sent, check_landed, send_now
from tests.system.cluster import admin


class Runs:
    """Runs of the job on one lake, with the test's own Spark, or in processes of their own; `stop` kills these."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, folder: Path) -> None:
        self.spark = spark
        self.kafka = kafka
        self.folder = folder
        self.lake = folder / "lake"
        self.checkpoint = folder / "checkpoint"
        self.sent = Sent()
        self.metrics = LakeMetrics()
        self.jobs: list[Lander] = []

    def start(self, **options: Any) -> Lander:
        """Starts a job in a process of its own; `options`: those of `Lander`."""
        self.jobs.append(Lander(self.kafka, **{"path": self.lake, "checkpoint": self.checkpoint, **options}))
        return self.jobs[-1]

    def await_files(self, job: Lander) -> int:
        """Waits until `job` writes the events of a batch: files exist, their commit hardly does. Returns the batch."""
        batch: int = job.next("batch begins")["batch"]
        files = partial((self.lake / EVENTS).rglob, "day=*/*.parquet")
        before = {*files()}
        job.until(lambda: not before.issuperset(files()), "a file of the events table")
        return batch

    def send(self, records: int, mark: str = "a", **options: Any) -> None:
        send_now(self.kafka, self.sent, records, mark=mark, **options)

    def check(self) -> None:
        check_landed(self.lake, self.sent)

    def stop(self) -> None:
        for job in self.jobs:
            job.kill()

    def settings(self, kafka: KafkaSettings | None = None, **lake: Any) -> LakeProcessSettings:
        values = {"batch_records": 100_000, "trigger": 0, "delay": 0, **lake}
        section = LakeSettings(path=str(self.lake), checkpoint=str(self.checkpoint), **values)
        return LakeProcessSettings(kafka=kafka or self.kafka, lake=section)

    def log(self) -> Any:
        log = CapturingLogger()
        self.calls = log.calls
        return log

    def job(self, *, once: bool = True, accept_loss: bool = False, **settings: Any) -> Job:
        return Job(
            self.spark, self.settings(**settings), once=once, log=self.log(), health=LakeHealth(self.metrics),
            accept_loss=accept_loss,
        )  # fmt: skip

    def run(self, **options: Any) -> None:
        rest, chosen = parted(LakeProcessSettings, {"lake": options})
        with constants(chosen):
            self.job(**rest.get("lake", {})).run()

    def killed_at(self, owner: type, step: str, **options: Any) -> None:
        """A run that dies when it comes to a step, a method of a class of the job's."""
        dies = mock.patch.object(owner, step, side_effect=RuntimeError("killed here"))
        with dies, pytest.raises(HaltError, match="killed here"):
            self.run(**options)

    def replay(self, **options: Any) -> None:
        """Goes back as far as it can, and lands from there."""
        names = (self.kafka.events_topic, self.kafka.quarantine_topic)
        brokers = Brokers(self.spark, self.kafka)
        go_back(self.tables(), brokers, names, datetime.min.replace(tzinfo=UTC), self.log())
        brokers.close()
        self.run(**options)

    def tables(self) -> Tables:
        return Tables(self.spark, str(self.lake))

    def erase(self, where: str, *, apply: bool = True) -> ErasureResult:
        asked = ErasureRequest(where, "somebody asked", "dpo")
        tables = self.tables()
        return Erase(tables, ErasureRows(tables), asked, apply=apply, log=self.log()).run()

    def said(self, event: str) -> list[dict[str, Any]]:
        """The fields of the last job's log lines with `event`."""
        return [call.kwargs for call in self.calls if call.args == (event,)]

    def query(self, sql: str) -> list[dict[str, Any]]:
        return query.run(sql, self.lake)

    def proof(self) -> list[dict[str, Any]]:
        return exactly_once(self.lake)

    def proven(self) -> bool:
        return all(row["ok"] for row in self.proof())

    def sql(self, table: str, statement: str) -> None:
        """Runs a Spark statement on a table, which it names TABLE, as an operator might by hand."""
        self.spark.sql(statement.replace("TABLE", f"delta.`{self.lake / table}`"))

    def delete_records(self, before: dict[int, int]) -> None:
        """Makes Kafka delete the events of each partition before an offset, as its retention does."""
        ends = {TopicPartition(self.kafka.events_topic, number): RecordsToDelete(end) for number, end in before.items()}
        self.admin(lambda admin: admin.delete_records(ends))

    def send_unread(self, partition: int, *, aborts: bool) -> None:
        """Sends an event in a transaction that is aborted, or that nobody ends: no reader of committed records knows it."""

        async def send() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.kafka.bootstrap_servers, transactional_id="t", acks="all"
            )
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait(self.kafka.events_topic, b"x", partition=partition)
            if aborts:
                await producer.abort_transaction()
            await producer.stop()

        asyncio.run(send())

    def admin(self, act: Callable[[AIOKafkaAdminClient], Any]) -> Any:
        """Returns what `act` answers when it is given a client of the brokers."""

        async def run() -> Any:
            async with admin(self.kafka) as client:
                return await act(client)

        return asyncio.run(run())


class Running:
    """A job that runs on in a thread, until it is stopped or superseded."""

    def __init__(self, runs: Runs, **settings: Any) -> None:
        self._job = runs.job(once=False, **settings)
        self._calls = runs.calls
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._job.run()
        except BaseException as error:
            self.failed.append(error)

    def next(self, event: str) -> None:
        """Waits until the job has logged `event`."""
        self.wait(lambda: not any(call.args == (event,) for call in self._calls))

    def wait(self, lasts: Callable[[], bool]) -> None:
        while lasts():
            self._thread.join(0.05)
            assert self._thread.is_alive(), self.failed

    def join(self) -> None:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._job.stop()
        self.join()
        assert not self.failed
