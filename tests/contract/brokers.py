"""Brokers on loopback, each a controller, too; three of them as companies run them: three replicas, two of which must be in
sync.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.waiting import until

BROKERS: Final = 3
HEEDS_RULES: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Properties of a broker that heeds access rules; without any, everybody may do all."""

_INTERNAL: Final = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class ProxiedListener:
    """A broker's second listener, which is only reached through a proxy: it is `behind`, and clients are told `port`."""

    def __init__(self) -> None:
        self.port, behind = free_port(), free_port()
        self.behind = HOST, behind

    def properties(self, port: int, controller_port: int) -> dict[str, str]:
        """The listeners of a broker that has it, and is at these ports."""
        places = (("PLAINTEXT", port), ("PROXIED", self.behind[1]), ("CONTROLLER", controller_port))
        return {
            "listeners": ",".join(f"{name}://{HOST}:{at}" for name, at in places),
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},PROXIED://{HOST}:{self.port}",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name, _ in places),
        }


class _Node(EmbeddedKafka):
    """One of `count`. `voters`: the quorum's address of each, as in ``controller.quorum.voters``."""

    def __init__(self, folder: Path, number: int, controller_port: int, voters: str, cluster: str, count: int) -> None:
        self.number = number
        self._cluster = cluster
        self.listener = ProxiedListener()
        properties = {
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "default.replication.factor": str(count),
            "min.insync.replicas": str(count // 2 + 1),
            **{f"{topic}.replication.factor": str(count) for topic in _INTERNAL},
            **{f"{topic}.min.isr": str(count // 2 + 1) for topic in _INTERNAL[1:]},
            "controlled.shutdown.retry.backoff.ms": "200",
            **(HEEDS_RULES if count == 1 else {}),  # several have to elect a controller before they know rules
        }
        super().__init__(folder, free_port(), controller_port, properties)

    def _configuration(self, data: Path) -> dict[str, str]:
        return {**super()._configuration(data), **self.listener.properties(self.port, self.controller_port)}

    def _format(self) -> None:
        """What Kafka's tool writes, without a JVM for each."""
        (self.folder / "data" / "meta.properties").write_text(
            f"version=1\nnode.id={self.number}\ncluster.id={self._cluster}\ndirectory.id={uuid.uuid4().hex[:22]}\n"
        )


class Brokers:
    """The cluster, which runs inside of a `with`. `hand` is the thread in which brokers are started: what a thread starts ends
    with it.
    """

    def __init__(self, folder: Path, count: int = BROKERS) -> None:
        ports = [free_port() for _ in range(count)]
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(ports, 1))
        cluster = "H" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self.nodes = {
            number: _Node(folder / f"broker-{number}", number, port, voters, cluster, count)
            for number, port in enumerate(ports, 1)
        }
        self._hand = concurrent.futures.ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        try:
            self._hand.submit(self._begin, *self.nodes).result()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number].begin()
        for number in numbers:
            self.nodes[number].wait()

    def __exit__(self, *_: object) -> None:
        """All of them at once: the last ones would wait in vain for a controller."""
        for node in self.nodes.values():
            node.kill()
        self._hand.shutdown()

    @property
    def bootstrap(self) -> str:
        """Their addresses."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def proxied(self) -> str:
        """The addresses that lead through proxies."""
        return ",".join(f"{HOST}:{node.listener.port}" for node in self.nodes.values())

    async def end(self, number: int, *, kill: bool = False) -> None:
        """Ends a broker, as an operator does or by SIGKILL."""
        node = self.nodes[number]
        await self._aside(node.kill if kill else partial(node.stop, timeout=60))

    async def begin(self, *numbers: int) -> None:
        """Starts brokers that were ended, and waits until they answer: one alone may have nobody to vote for it."""

        await self._aside(partial(self._begin, *numbers))

    async def _aside(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._hand, work)

    async def in_sync(self, kafka: KafkaSettings, topic: str) -> None:
        """Waits until every replica of a topic is in sync: nobody restarts the next broker before."""
        await until(lambda: self._all_in_sync(kafka, topic), f"all replicas of {topic} are in sync")

    async def _all_in_sync(self, kafka: KafkaSettings, topic: str) -> bool:
        try:
            found = await self._partitions(kafka, topic)
        except (KafkaError, OSError):
            return False
        return bool(found) and all(len(partition["isr"]) == len(self.nodes) for partition in found)

    async def leader(self, kafka: KafkaSettings, topic: str) -> int:
        """A broker that leads most partitions of a topic."""
        leaders = [partition["leader"] for partition in await self._partitions(kafka, topic)]
        return max(self.nodes, key=leaders.count)

    async def _partitions(self, kafka: KafkaSettings, topic: str) -> list[dict[str, Any]]:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            await client.start()
            (described,) = await client.describe_topics([topic])
            return described["partitions"]
        finally:
            await client.close()
