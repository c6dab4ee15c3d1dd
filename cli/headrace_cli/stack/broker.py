"""An embedded Kafka for laptops and tests: one process that is both broker and KRaft controller.

It is kept small: 128 MiB of heap and only the C1 compiler. It is ready in about five seconds, and listens on the loopback
interface only.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace_cli.ground import CommandError
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home

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

_SETTINGS: Final = "server.properties"
_OF_LOGS: Final = "log4j2.xml"
_SCRATCH: Final = "tmp"
"""Libraries are loaded from there: many machines let nothing in /tmp be executed."""
_LOGGING: Final = """\
<Configuration status="WARN"><Appenders><Console name="console">
<PatternLayout pattern="%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %-5p %m (%c{1})%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="console"/></Root>
<Logger name="kafka.server.KafkaRaftServer" level="INFO"/><Logger name="org.apache.kafka.common.utils.AppInfoParser" level="OFF"/>
</Loggers></Configuration>
"""


LOCALE: Final[Mapping[str, str]] = {"LC_ALL": "C.UTF-8"}
"""Java's: messages in English, and names of files in UTF-8, whatever the user's locale is."""


class Broker:
    """One broker in `folder`, which may be empty or hold the data of an earlier run, on two ports of the loopback interface."""

    def __init__(self, folder: Path, port: int, controller_port: int) -> None:
        self.folder = folder.absolute()
        self.port = port
        self.controller_port = controller_port

    def prepare(self) -> None:
        """Write the configuration, and format new storage. Raises `CommandError` for an unusable folder."""
        data, scratch = self.folder / "data", self.folder / _SCRATCH
        try:
            data.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)  # of a killed broker
            scratch.mkdir(exist_ok=True)
            (self.folder / _OF_LOGS).write_text(_LOGGING)
            (self.folder / _SETTINGS).write_text(
                "".join(f"{name}={value}\n" for name, value in self._configuration(data).items())
            )
            if not (data / "meta.properties").exists():
                self._format()
        except OSError as error:
            raise CommandError(f"Kafka's folder {self.folder} cannot be used: {error.strerror}.") from error

    def _configuration(self, data: Path) -> dict[str, str]:
        return {
            **_PROPERTIES,
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": data.name,  # relative: the folder may have any name
        }

    def _format(self) -> None:
        """Write what Kafka needs, without a JVM. Its own tool also sets features; here all but `metadata.version` stay at 0."""
        (self.folder / "data" / "meta.properties").write_text(
            f"version=1\nnode.id=1\ncluster.id={uuid.uuid4().hex[:22]}\n"
        )

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = ["-Xmx128m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        options += [f"-Dlog4j2.configurationFile={_OF_LOGS}", f"-Djava.io.tmpdir={_SCRATCH}"]
        return [str(java_home() / "bin" / "java"), *options, "-cp", f"{jars('kafka')}/*", main, *arguments]

    def command(self) -> list[str]:
        """Return the broker's command line, which goes to its folder first. Call `prepare` before."""
        return ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(self.folder), *self._java("kafka.Kafka", _SETTINGS)]


def message(said: str) -> str:
    """Return the last line that is a message and no frame of Java's stack traces; or an empty text."""
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return lines[-1].strip() if lines else ""
