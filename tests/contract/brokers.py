"""Three brokers on loopback, as companies run them: each is a controller, too; three replicas, two of which must be in sync."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from headrace_cli.stack.broker import HOST, EmbeddedKafka, answers
from headrace_common.operations.settings import KafkaSettings

from tests.contract.ports import kept_port
from tests.contract.waiting import until, wait_for

BROKERS: Final = 3
_INTERNAL: Final = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class _Node(EmbeddedKafka):
    """One of them. `voters`: the quorum's address of each, as in ``controller.quorum.voters``."""

    def __init__(self, folder: Path, number: int, controller_port: int, voters: str, cluster: str) -> None:
        self.number = number
        self._cluster = cluster
        properties = {
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "default.replication.factor": str(BROKERS),
            "min.insync.replicas": "2",
            **{f"{topic}.replication.factor": str(BROKERS) for topic in _INTERNAL},
            **{f"{topic}.min.isr": "2" for topic in _INTERNAL[1:]},
            "controlled.shutdown.retry.backoff.ms": "200",
        }
        super().__init__(folder, kept_port(), controller_port, properties)

    def _format(self) -> None:
        """What Kafka's tool writes, without a JVM for each."""
        (self.folder / "data" / "meta.properties").write_text(
            f"version=1\nnode.id={self.number}\ncluster.id={self._cluster}\ndirectory.id={uuid.uuid4().hex[:22]}\n"
        )

    def begin(self) -> None:
        """Starts it and does not wait: alone, it answers nobody."""
        self.prepare()
        self._spawn()

    def wait(self) -> None:
        """Until it answers."""

        def ready() -> bool:
            assert self.running, f"broker {self.number} ended: {self._log_tail()}"
            return answers(HOST, self.port)

        wait_for(ready, f"broker {self.number} answers")

    def move(self) -> None:
        """The next start is at another port."""
        port = kept_port()
        assert port != self.port
        self.port = port
        self._requested_ports = (port, self.controller_port)


class Brokers:
    """The cluster. `hand` is the thread in which brokers are started: what a thread starts ends with it."""

    def __init__(self, folder: Path) -> None:
        ports = [kept_port() for _ in range(BROKERS)]
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(ports, 1))
        cluster = "H" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self.nodes = {
            number: _Node(folder / f"broker-{number}", number, port, voters, cluster)
            for number, port in enumerate(ports, 1)
        }
        self._hand = concurrent.futures.ThreadPoolExecutor(1)

    def start(self) -> None:
        def begin() -> None:
            for node in self.nodes.values():
                node.begin()
            for node in self.nodes.values():
                node.wait()

        self._hand.submit(begin).result()

    def stop(self) -> None:
        """All of them at once: the last ones would wait in vain for a controller."""
        for node in self.nodes.values():
            with contextlib.suppress(AssertionError):
                node.kill()
        self._hand.shutdown()

    @property
    def bootstrap(self) -> str:
        """Their addresses, as they are now."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    async def restart(self, number: int, *, kill: bool = False, elsewhere: bool = False) -> None:
        """Ends a broker, as an operator does or by SIGKILL, and starts it again, at another port if `elsewhere`."""
        node = self.nodes[number]

        def again() -> None:
            if kill:
                node.kill()
            else:
                node.stop(timeout=60)
            if elsewhere:
                node.move()
            node.begin()
            node.wait()

        await self._aside(again)

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
        return bool(found) and all(len(partition["isr"]) == BROKERS for partition in found)

    async def leader(self, kafka: KafkaSettings, topic: str) -> int:
        """A broker that leads most partitions of a topic."""
        leaders = [partition["leader"] for partition in await self._partitions(kafka, topic)]
        return max(self.nodes, key=leaders.count)

    async def _partitions(self, kafka: KafkaSettings, topic: str) -> list[dict[str, object]]:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            await client.start()
            (described,) = await client.describe_topics([topic])
            return described["partitions"]
        finally:
            await client.close()


@contextlib.contextmanager
def three_brokers(folder: Path) -> Iterator[Brokers]:
    """They run inside the block."""
    running = Brokers(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()
