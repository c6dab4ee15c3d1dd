"""The stack's Kafka, started and ended by a test or a benchmark."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from headrace_cli.ground import CommandError
from headrace_cli.machine.ports import free_port
from headrace_cli.machine.tether import tethered
from headrace_cli.stack.broker import HOST, LOCALE, Broker, message
from typing_extensions import override

from tests.contract.waiting import BROKER_TIME


class EmbeddedKafka(Broker):
    """One broker in `folder`. `prepare` chooses free ports for a `port` or `controller_port` of 0.

    `properties` add to the broker's own and override them. `heap` is as in Java's ``-Xmx``. `scram_users` (passwords by name)
    can log in by SCRAM-SHA-512 from the first start on. In a `with` it runs.
    """

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        controller_port: int = 0,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "128m",
        scram_users: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port, controller_port)
        self.log = self.folder / "server.log"
        self._extra_properties = dict(properties or {})
        self._heap = heap
        self._scram_users = dict(scram_users or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The address for clients, `host:port`."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the broker's process, which may be dead. Call `start` first."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    @override
    def prepare(self) -> None:
        self.port, self.controller_port = self.port or free_port(), self.controller_port or free_port()
        super().prepare()

    @override
    def _configuration(self, data: Path) -> dict[str, str]:
        return {**super()._configuration(data), **self._extra_properties}

    @override
    def _format(self) -> None:
        if not self._scram_users:
            super()._format()
            return
        users = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in self._scram_users.items()]
        added = (word for user in users for word in ("--add-scram", user))
        command = self._java(
            "kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", "server.properties", *added
        )
        subprocess.run(command, cwd=self.folder, check=True)

    @override
    def _java(self, main: str, *arguments: str) -> list[str]:
        java, heap, *rest = super()._java(main, *arguments)
        return [java, heap, f"-Xmx{self._heap}", *rest]  # the last one counts

    def start(self) -> None:
        """Starts the broker and waits until it answers. `stop` ends it; it also ends together with this process.

        Raises `CommandError` as soon as the broker has died, with its last line, or after `BROKER_TIME`.
        """
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Starts it and does not wait."""
        self.prepare()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                tethered(self.command()), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **LOCALE},
            )  # fmt: skip

    def wait(self) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + BROKER_TIME
        while not answers(HOST, self.port):
            if not self.running:
                raise CommandError(f"Kafka stopped at its start: {message(self._log_tail()) or 'no output'}")
            if time.monotonic() > deadline:
                self.stop()
                raise CommandError(f"Kafka did not answer within {BROKER_TIME:.0f} s; see {self.log}.")
            time.sleep(0.05)

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-10_000:] if self.log.exists() else ""

    def stop(self, timeout: float = 20) -> None:
        """End the broker with SIGTERM, after `timeout` seconds with SIGKILL. Does nothing if it has already ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the broker with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def answers(host: str, port: int) -> bool:
    """Whether a broker answers a Metadata request at `host`:`port`."""
    request = struct.pack(">hhihi", 3, 2, 1, -1, 0)  # Metadata, version 2, correlation id 1, no client id, no topic
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        return bool(connection.recv(1))
    return False
