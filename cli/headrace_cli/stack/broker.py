"""An embedded Kafka for laptops and tests: one process that is both broker and KRaft controller.

It is kept small: 128 MiB of heap and only the C1 compiler. It is ready in about five seconds, and listens on the loopback
interface only.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from headrace_cli.ground import CommandError
from headrace_cli.machine.java import find_java
from headrace_cli.machine.ports import free_port
from headrace_cli.machine.tether import tethered
from headrace_cli.machine.toolchain import class_path

HOST: Final = "127.0.0.1"
SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""Size of a segment. Retention deletes whole segments, so a partition may exceed its limit by this much."""

_PROPERTIES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # after a kill, the broker can come back only when the controller believes it dead
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    # there is only one broker for the replicas
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # keep heap, threads and files small
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),  # the default, 128 MiB, is the whole heap
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.index.size.max.bytes": str(1024 * 1024),
    "metadata.log.segment.bytes": str(SEGMENT_BYTES),
    "metadata.max.retention.bytes": str(2 * SEGMENT_BYTES),
    # delete soon what retention no longer keeps
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "1000",
}

_LOGGING: Final = """\
<Configuration status="WARN"><Appenders><Console name="console">
<PatternLayout pattern="%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %-5p %m (%c{1})%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="console"/></Root>
<Logger name="kafka.server.KafkaRaftServer" level="INFO"/><Logger name="org.apache.kafka.common.utils.AppInfoParser" level="OFF"/>
</Loggers></Configuration>
"""


LOCALE: Final[Mapping[str, str]] = {"LC_ALL": "C.UTF-8"}
"""Java's: messages in English, and names of files in UTF-8, whatever the user's locale is."""


def escaped(value: str) -> str:
    """Return a value for a file of Java's properties, which is Latin-1 and gives backslashes a meaning."""
    units = (value.replace("\\", "\\\\")).encode("utf-16-be")
    numbers = [int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2)]
    return "".join(chr(number) if 0x20 <= number < 0x7F else f"\\u{number:04x}" for number in numbers)


def reason(said: str) -> str:
    """Return the last line that is a message and no frame of a stack trace; empty if there is none."""
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return lines[-1].strip() if lines else ""


class EmbeddedKafka:
    """One broker in `folder`, which may be empty or hold the data of an earlier run.

    `prepare` chooses free ports for a `port` or `controller_port` of 0. `properties` add to the broker's own and override
    them. `heap` is as in Java's ``-Xmx``. The broker writes to `log`, by default ``server.log`` in `folder`. `scram_users`
    (passwords by name) can log in by SCRAM-SHA-512 from the first start on.
    """

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        controller_port: int = 0,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "128m",
        log: Path | None = None,
        scram_users: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.log = log or self.folder / "server.log"
        self._requested_ports = (port, controller_port)
        self._extra_properties = dict(properties or {})
        self._heap = heap
        self._scram_users = dict(scram_users or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port
        self.controller_port = controller_port

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

    def prepare(self) -> None:
        """Choose the ports, write the configuration, and format new storage (about 2 s).

        Raises `CommandError` (no Java, no jars, an unusable folder).
        """
        port, controller_port = self._requested_ports
        self.port = port or free_port()
        self.controller_port = controller_port or free_port()
        data = self.folder / "data"
        try:
            data.mkdir(parents=True, exist_ok=True)
            (self.folder / "log4j2.xml").write_text(_LOGGING)
            (self.folder / "server.properties").write_text(
                "".join(f"{name}={escaped(value)}\n" for name, value in self._configuration(data).items())
            )
        except OSError as error:
            raise CommandError(f"Kafka's folder {self.folder} cannot be used: {error.strerror}.") from error
        if not (data / "meta.properties").exists():
            self._format()

    def _configuration(self, data: Path) -> dict[str, str]:
        return {
            **_PROPERTIES,
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": str(data),
            **self._extra_properties,
        }

    def _format(self) -> None:
        cluster = (
            "H" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        )  # an id must not begin with a dash
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", self._properties_file())
        for name, password in self._scram_users.items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **LOCALE},
        )
        if done.returncode != 0:
            why = reason(done.stderr + done.stdout) or f"exit status {done.returncode}"
            raise CommandError(f"Kafka's storage in {self.folder} could not be formatted: {why}")

    def _properties_file(self) -> str:
        return str(self.folder / "server.properties")

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = [f"-Xmx{self._heap}", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += ["-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}"]
        return [str(find_java().executable), *options, "-cp", class_path("kafka"), main, *arguments]

    def command(self) -> list[str]:
        """Return the broker's command line. Call `prepare` first."""
        return self._java("kafka.Kafka", self._properties_file())

    def start(self, timeout: float = 300) -> None:
        """Start the broker and wait until it answers, for at most `timeout` seconds.

        `stop` ends it; it also ends together with this process. If another process takes a port that `prepare` has chosen,
        the broker tries again with other ports. Raises `CommandError` as soon as the broker has died, with its last line.
        """
        deadline = time.monotonic() + timeout
        for attempt in range(3):
            self.prepare()
            self._spawn()
            while self.running:
                if answers(HOST, self.port):
                    return
                if time.monotonic() > deadline:
                    self.stop()
                    raise CommandError(f"Kafka did not answer within {timeout:.0f} s; see {self.log}.")
                time.sleep(0.05)
            if attempt == 2 or all(self._requested_ports) or "Address already in use" not in self._log_tail():
                break
        raise CommandError(f"Kafka stopped at its start: {reason(self._log_tail()) or 'no output'}")

    def _spawn(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        output: IO[bytes]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                tethered(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **LOCALE},
            )

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


def answers(host: str, port: int, timeout: float = 1) -> bool:
    """Return whether a Kafka broker at `host`:`port` answers an ApiVersions request. `timeout` is in seconds for each wait."""
    request = struct.pack(">hhih", 18, 0, 1, -1)  # ApiVersions, version 0, correlation id 1, no client id
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(struct.pack(">i", len(request)) + request)
            reply = b""
            while len(reply) < 10:  # size, correlation id, error code
                data = connection.recv(64)
                if not data:
                    return False
                reply += data
    except OSError:
        return False
    correlation, error = struct.unpack_from(">ih", reply, 4)
    return (correlation, error) == (1, 0)
