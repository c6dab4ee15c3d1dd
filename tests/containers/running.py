"""A broker and a receiver, each in a container."""

from __future__ import annotations

import signal
from typing import Any, Self

from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import environment
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from typing_extensions import override

from tests.contract.receiver import HOST, Receiver
from tests.contract.waiting import until, wait_for

KAFKA_IMAGE = "apache/kafka:4.3.1"
OPS_PORT = 8080
HARDENED: dict[str, Any] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
"""As the compose file and the chart run every image."""


def publish(container: DockerContainer, inside: int, outside: int | None = None) -> None:
    """On loopback alone; None: on any free port. `with_bind_ports` knows no addresses."""
    container.ports[f"{inside}/tcp"] = (HOST, outside)  # type: ignore[assignment] # docker takes it


class KafkaContainer(DockerContainer):
    """One broker: `bootstrap` for this machine, ``kafka:19092`` for the containers of its network.

    testcontainers' own class knows other images only.
    """

    INSIDE = "kafka:19092"

    def __init__(self, network: Network) -> None:
        super().__init__(KAFKA_IMAGE)
        self.port = free_port()
        self.with_network(network)
        self.with_network_aliases("kafka")
        publish(self, 9092, self.port)  # it has to advertise this port, so it must know it
        replicas = {"OFFSETS_TOPIC_REPLICATION_FACTOR", "TRANSACTION_STATE_LOG_REPLICATION_FACTOR"}
        replicas |= {"TRANSACTION_STATE_LOG_MIN_ISR", "SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR"}
        replicas |= {"SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR"}
        settings = {
            "NODE_ID": "1",
            "PROCESS_ROLES": "broker,controller",
            "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "LISTENERS": "INSIDE://:19092,HOST://:9092,CONTROLLER://localhost:9093",
            "ADVERTISED_LISTENERS": f"INSIDE://{self.INSIDE},HOST://{HOST}:{self.port}",
            "LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "INTER_BROKER_LISTENER_NAME": "INSIDE",
            "AUTO_CREATE_TOPICS_ENABLE": "false",
            "HEAP_OPTS": "-Xmx256m",
            **dict.fromkeys(replicas, "1"),
        }
        for name, value in settings.items():
            self.with_env(f"KAFKA_{name}", value)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @override
    def start(self) -> Self:
        super().start()
        wait_for(self._has_started, "Kafka in its container has started")
        return self

    def _has_started(self) -> bool:
        container = self.get_wrapped_container()
        container.reload()
        log = container.logs()
        assert container.status != "exited", log.decode(errors="replace")
        return b"Kafka Server started" in log


class Contained(Receiver):
    """A receiver's image, run without any right. What the suites ask of a process they ask of it, too."""

    def place(self, image: str, network: Network) -> None:
        """What is run, and where; to be called once, before it starts."""
        variables = {
            **environment("kafka", bootstrap_servers=KafkaContainer.INSIDE),
            **environment(
                "kafka",
                events_topic=self.kafka.events_topic,
                quarantine_topic=self.kafka.quarantine_topic,
                segments_topic=self.kafka.segments_topic,
            ),
        }
        for section, values in self._sections.items():
            variables |= environment(section, **values)
        inside = int(str(self._sections.get("listen", {}).get("port", 15000)))
        variables |= environment("listen", port=inside)
        self._inside = inside
        self._container = DockerContainer(image).with_network(network).with_kwargs(**HARDENED)
        for name, value in variables.items():
            self._container.with_env(name, value)
        for port in (inside, OPS_PORT):
            publish(self._container, port)

    @property
    def container(self) -> Any:
        """Docker's own object."""
        return self._container.get_wrapped_container()

    @override
    def spawn(self) -> None:
        self._container.start()
        self.port = self._published(self._inside)
        self.ops = self._published(OPS_PORT)

    def _published(self, port: int) -> int:
        def found() -> int:
            self.container.reload()
            (first, *_) = self.container.ports.get(f"{port}/tcp") or [{"HostPort": 0}]
            return int(first["HostPort"])

        return wait_for(found, f"port {port} is published")

    @override
    async def listens(self) -> None:
        def ready() -> bool:
            assert self.exit_status() is None, f"it ended at its start: {self.lines()}"
            return bool(self.lines("ready"))

        await until(ready, f"{self.protocol} is ready")

    @override
    def exit_status(self) -> int | None:
        self.container.reload()
        return self.container.attrs["State"]["ExitCode"] if self.container.status == "exited" else None

    @override
    def signal(self, number: signal.Signals) -> None:
        self.container.kill(number.name)

    @override
    def stop(self) -> None:
        self._container.stop()

    @override
    def said(self) -> str:
        return self.container.logs().decode(errors="replace")
