"""A standalone Spark cluster on the loopback interface: one master and some workers, each a process that a test may kill."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pyspark
from headrace_cli.machine.java import java_home
from headrace_cli.machine.ports import free_port
from headrace_cli.machine.tether import tethered

from tests.contract.processes import below, command, kill
from tests.lake.lander import QUICK_START

HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent
TIMEOUT = 900.0
WORKER_MEMORY = "640m"
EXECUTOR_MEMORY = "512m"
_DEPLOY = "org.apache.spark.deploy"
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex{10}
"""


def submit(script: str, *options: str) -> list[str]:
    """The command line of PySpark's own `spark-submit`."""
    return [str(HOME / "bin" / "spark-submit"), *options, script]


class Cluster:
    """A master and `workers` workers with one core each. `environment`: more variables for workers, and so executors."""

    def __init__(self, folder: Path, workers: int = 2, environment: dict[str, str] | None = None) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "log4j2.properties").write_text(_LOGGING)
        self._environment = environment or {}
        self._port, self._web = free_port(), free_port()
        self.master = f"spark://{HOST}:{self._port}"
        self._processes = [self._start("master", "master.Master", "--port", self._port, "--webui-port", self._web)]
        self._await_workers(0)
        self.workers = [self._start_worker(number) for number in range(workers)]
        self._await_workers(workers)

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self._folder / f"worker-{number}"
        return self._start(
            work.name, "worker.Worker", "--webui-port", 0, "--cores", 1, "--memory", WORKER_MEMORY, "--work-dir", work,
            self.master,
        )  # fmt: skip

    def _start(self, name: str, main: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), f"{_DEPLOY}.{main}"]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                tethered([*command, "--host", HOST, *map(str, arguments)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_DAEMON_MEMORY": "128m",
                    "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
                    "JAVA_HOME": str(java_home()),
                    "JDK_JAVA_OPTIONS": QUICK_START,
                    "SPARK_LOCAL_IP": HOST,
                    **self._environment,
                },
            )
        self._processes = [*getattr(self, "_processes", []), process]
        return process

    def state(self) -> dict[str, Any]:
        """The master's own report; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    def alive(self) -> int:
        """The number of workers that the master considers alive."""
        return sum(worker["state"] == "ALIVE" for worker in self.state().get("workers", []))

    def _await_workers(self, number: int) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not (self.state() and self.alive() == number):
            assert time.monotonic() < deadline, f"no {number} workers: {self.said()}"
            assert all(process.poll() is None for process in self._processes), self.said()
            time.sleep(0.05)

    def executors(self, number: int) -> list[psutil.Process]:
        """The running executors of worker `number`."""
        started = below(self.workers[number].pid)
        return [process for process in started if any("ExecutorBackend" in word for word in command(process))]

    def kill_worker(self, number: int) -> int:
        """SIGKILL to a worker and its executors, as if their host died. Returns the number of executors."""
        executors = self.executors(number)
        for pid in (self.workers[number].pid, *(process.pid for process in executors)):
            kill(pid)
        self.workers[number].wait()
        return len(executors)

    def said(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(self._folder.glob("*.log")))

    def stop(self) -> None:
        for number, worker in enumerate(self.workers):
            if worker.poll() is None:
                self.kill_worker(number)
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
