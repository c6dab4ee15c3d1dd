"""The landing job as a separate process, which a test watches line by line, freezes and kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.tables.layout import EVENTS
from headrace_lake.tables.properties import APP_ID

from tests.contract.receiver import variables as variables_of
from tests.contract.waiting import LOOK, there

TIMEOUT = 1200.0
"""Seconds that a test waits for a line at most; it continues as soon as the line is there."""


QUICK = {
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
}
"""For JVMs that live for seconds: a start spends half of its CPU on optimising code that does not run long. The options leave
48 MB for code by default; within a minute they are full, and the JVM discards code and compiles it again: hence the 240 MB. The
whole heap is collected when 21 MB of classes are loaded, and again with some more: hence the 256 MB."""


def spark_variables() -> dict[str, str]:
    """Returns what a process that starts Spark needs beside its own variables."""
    return {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", **QUICK}


class Lander:
    """One run of ``python -m headrace_lake`` in its own process group, together with its JVM.

    `launcher`: another command for it, up to its arguments. `variables`: more environment variables. `lake_settings`: more
    settings of the section LAKE, or replacements; None removes a setting.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        *,
        once: bool = False,
        launcher: Sequence[str] = (sys.executable, "-m", "headrace_lake"),
        variables: Mapping[str, str] | None = None,
        **lake_settings: object,
    ) -> None:
        settings = {
            "jars": jars("spark"), "master": "local[2]", "trigger": 0, "delay": 0, "batch_records": 1000, **lake_settings,
        }  # fmt: skip
        given = {name: value for name, value in settings.items() if value is not None}
        told = variables_of(kafka, {"lake": given, "log": {"level": "debug"}})
        self._process = subprocess.Popen(
            [*launcher, *(["--once"] if once else [])],
            env={**told, **spark_variables(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # spark-submit writes its Python's output here
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[dict[str, Any]] = []
        self.other: list[str] = []
        self._seen = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in there(self._process.stdout):
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.other.append(line)

    def next(self, event: str) -> dict[str, Any]:
        """Returns the next line with `event`; fails if the process ends without it."""
        found: list[dict[str, Any]] = []

        def said() -> bool:
            while not found and self._seen < len(self.lines):
                found.extend(line for line in self.lines[self._seen : self._seen + 1] if line["event"] == event)
                self._seen += 1
            return bool(found)

        self.until(said, repr(event))
        return found[0]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for `condition`; fails if the process ends before."""
        deadline = time.monotonic() + TIMEOUT
        while self._reader.is_alive() and not condition():
            assert time.monotonic() < deadline, f"no {what} within {TIMEOUT} s: {self.tail()}"
            time.sleep(LOOK)
        assert condition(), f"it ended before {what}: {self.tail()}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to driver and JVM."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()
        self._reader.join()

    def terminate(self) -> None:
        """SIGTERM to the driver alone, like a supervisor."""
        self._process.terminate()

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Waits for the end; the exit status."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout} s: {self.tail()}") from None
        self._reader.join(10)
        return status

    def reason(self) -> str:
        """Why it stopped, in its own words."""
        return next((line["reason"] for line in reversed(self.lines) if line["event"] == "stopped"), "")

    def tail(self) -> str:
        return "\n".join([*(json.dumps(line) for line in self.lines[-15:]), *self.other[-15:]])


def version(lake: Path, table: str) -> int:
    """The transaction version in the table's log, read by deltalake instead of the job's code."""
    found = DeltaTable(str(lake / table)).transaction_version(APP_ID)
    return -1 if found is None else found


def landed(lake: Path) -> int:
    """Returns how many events the lake has, by its table's log: a millisecond, where `query` is a process that takes a second."""
    try:
        files = DeltaTable(str(lake / EVENTS)).get_add_actions(flatten=True)
    except TableNotFoundError:
        return 0
    return sum(files.column("num_records").to_pylist())
