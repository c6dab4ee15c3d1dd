"""A receiver as a process of its own: started as users start it, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
from headrace_cli.machine.ports import free_port
from headrace_cli.machine.tether import tethered
from headrace_common.operations.settings import KafkaSettings, environment, own_environment
from headrace_common.operations.variables import named_protocols
from prometheus_client.parser import text_string_to_metric_families

from tests.constants import parted, told
from tests.contract.dialect import Dialect
from tests.contract.waiting import PATIENCE, until

HOST = "127.0.0.1"

Sections = Mapping[str, Mapping[str, object]]


def variables(kafka: KafkaSettings, sections: Sections | None = None) -> dict[str, str]:
    """The environment of a process of ours that uses `kafka`; `sections` win."""
    given: dict[str, Mapping[str, object]] = {
        "kafka": {
            "bootstrap_servers": kafka.bootstrap_servers,
            "events_topic": kafka.events_topic,
            "quarantine_topic": kafka.quarantine_topic,
            "segments_topic": kafka.segments_topic,
        },
        "listen": {"host": HOST},
        "ops": {"host": HOST, "port": 0},
    }
    for section, values in (sections or {}).items():
        given[section] = {**given.get(section, {}), **values}
    ours = {name: text for section, values in given.items() for name, text in environment(section, **values).items()}
    inherited = {name: value for name, value in os.environ.items() if name not in own_environment()}
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **ours}


class Receiver:
    """``python -m headrace_common <protocol>``, or another module, on free ports. What it says goes to `log`."""

    def __init__(
        self, protocol: str, kafka: KafkaSettings, folder: Path, sections: Sections | None = None, module: str = ""
    ) -> None:
        self.protocol = protocol
        self._program = [module] if module else ["headrace_common", protocol]
        self.kafka = kafka
        self.log = folder / f"{protocol}.log"
        self.port = 0
        self.ops = 0
        self.environment: dict[str, str] = {}
        """Variables beside those of its settings."""
        self._sections = dict(sections or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._lines_before = 0

    @classmethod
    def of(cls, dialect: Dialect, kafka: KafkaSettings, folder: Path, sections: Sections | None = None) -> Self:
        """The receiver of a dialect."""
        merged = {name: dict(values) for name, values in dialect.sections.items()}
        for name, values in (sections or {}).items():
            merged[name] = {**merged.get(name, {}), **values}
        return cls(dialect.name, kafka, folder, merged, dialect.module)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Starts the process and does not wait for anything. It ends when the thread does that calls this."""
        self.port = self.port or free_port()
        self._lines_before = len(self.lines())
        ours = named_protocols().get(self.protocol)
        rest, chosen = parted(ours.load().settings, self._sections) if ours else (self._sections, [])
        sections = {**rest, "listen": {"port": self.port, **rest.get("listen", {})}}
        program = ["tests.constants", told(chosen), *self._program] if chosen else self._program
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                tethered([sys.executable, "-m", *program]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**variables(self.kafka, sections), **self.environment},
            )

    async def start(self) -> None:
        """Starts it and waits until it listens."""
        self.spawn()
        await self.listens()

    async def listens(self) -> None:
        """Waits until it does."""

        def ready() -> bool:
            assert self.exit_status() is None, f"it ended at its start: {self.said()}"
            now = self.lines()[self._lines_before :]  # before it stand those of a process that has ended
            return any(line.get("event") == "ready" for line in now)

        await until(ready, f"{self.protocol} is ready")
        self.ops = self.lines("starting")[-1]["ops"]

    def exit_status(self) -> int | None:
        """How it ended; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and it is gone when this returns."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    async def drains(self) -> None:
        """Tells it to stop, and waits until it has: what came by then is stored, also what asked for no acknowledgement."""
        self.signal(signal.SIGTERM)
        assert await self.ended() == 0

    def stop(self) -> None:
        """Ends it if it runs."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def said(self) -> str:
        """All that it has logged, as text."""
        return self.log.read_text() if self.log.exists() else ""

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """What it has logged, or of that the lines of one event."""
        found = []
        for line in self.said().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"event": line}
            if event is None or entry.get("event") == event:
                found.append(entry)
        return found

    async def problem(self) -> str:
        """Why Kafka is not usable, as soon as it says so."""
        await until(lambda: self.lines("kafka is not usable"), "it says what is wrong")
        problem: str = self.lines("kafka is not usable")[0]["problem"]
        return problem

    def told(self) -> list[dict[str, Any]]:
        """What it has logged but for its start and end, and that the machine was too busy for it."""
        beside = ("starting", "stopping", "Timeout (", "Thread 0x", "  File ")
        return [line for line in self.lines() if line["event"] and not line["event"].startswith(beside)]

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of an ops page."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{HOST}:{self.ops}{path}") as page,
        ):
            return page.status, await page.text()

    async def ready(self) -> bool:
        status, _ = await self.get("/readyz")
        return status == 200

    async def metric(self, name: str, **labels: str) -> float:
        """A metric without its prefix, summed over the labels that are not given."""
        _, text = await self.get("/metrics")
        total = 0.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"headrace_{name}" and labels.items() <= sample.labels.items():
                    total += sample.value
        return total

    async def shows(self, value: float, name: str, **labels: str) -> None:
        """Waits until a metric is `value`: a connection counts as closed only after its client has left, too."""

        async def shown() -> bool:
            return await self.metric(name, **labels) == value

        await until(shown, f"{name} is {value:g}")

    async def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit status, awaited."""
        await until(lambda: self.exit_status() is not None, f"{self.protocol} ends", seconds)
        status = self.exit_status()
        assert status is not None
        return status


class Receivers:
    """Receivers of one protocol, or dialect, for one test, with sections of settings:
    ``await start(limits={"connections": 3})``.
    """

    def __init__(self, of: str | Dialect, kafka: KafkaSettings, folder: Path) -> None:
        """`kafka`: where none is named."""
        self._of = of
        self._kafka = kafka
        self._folder = folder
        self._made: list[Receiver] = []

    def make(self, kafka: KafkaSettings | None = None, /, **sections: Mapping[str, object]) -> Receiver:
        folder = self._folder / f"receiver-{len(self._made)}"
        folder.mkdir()
        make = Receiver if isinstance(self._of, str) else Receiver.of
        self._made.append(make(self._of, kafka or self._kafka, folder, sections))  # type: ignore[arg-type]
        return self._made[-1]

    async def __call__(self, kafka: KafkaSettings | None = None, /, **sections: Mapping[str, object]) -> Receiver:
        made = self.make(kafka, **sections)
        await made.start()
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._made:
            each.stop()
