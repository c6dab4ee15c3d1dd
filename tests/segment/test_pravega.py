"""Pravega's own Java client, version 0.13.0, while its connections are cut: it writes and follows segments."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings
from typing_extensions import override

from tests import real_clients
from tests.contract.receiver import Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE
from tests.real_clients import built
from tests.segment.client import TodayClient
from tests.system.proxy import HOST, Proxy
from tests.tiers import sized

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.requires("java", "maven"),
    pytest.mark.timeout(sized(10 * PATIENCE, 10 * PATIENCE, 3600)),
]

CLIENT = Path(__file__).parent / "clients" / "java"
EVENTS = sized(1_000, 3_000, 50_000)
SEGMENTS = 8
KEYS = 64
LENGTH = struct.Struct(">i")


class CuttingProxy(Proxy):
    """Cuts each connection after some bytes of what its client says: at once, or when some of the answers may be heard."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__((HOST, port))
        self._chance = random.Random(seed)
        self.cuts = 0

    @override
    async def _questions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._chance.randrange(1, self._chance.choice((1_000, 20_000, 1_000_000)))
        while data := await reader.read(left):
            writer.write(data)
            await writer.drain()
            left -= len(data)
            if not left:
                self.cuts += 1
                await asyncio.sleep(self._chance.choice((0, self._chance.random() * 0.03)))
                raise ConnectionAbortedError
        writer.close()


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the compiled client."""
    goals = ["compiler:compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
    folder = built(CLIENT, tmp_path_factory.mktemp("java"), "mvn", "-B", "-q", *goals)
    return f"{folder / 'target' / 'classes'}:{(folder / 'classpath').read_text()}"


def sent(n: int) -> bytes:
    """As the client makes it."""
    text = f"event {n} ".encode()
    return text + bytes([n % 251]) * (300_000 if n % 2_500 == 2_499 else n * 31 % 400)


def number(event: bytes) -> int:
    return int(event.split(b" ", 2)[1])


def unframed(data: bytes) -> list[bytes]:
    """What Event messages hold."""
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from(">iI", data, at)
        assert kind == 0
        found.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return found


def heard(file: Path) -> list[bytes]:
    """What the client has read of a segment."""
    data, found, at = file.read_bytes(), [], 0
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


async def run(class_path: str, *arguments: object) -> str:
    """What a client says in its whole run."""
    return await real_clients.run("java", "-Xmx1g", "-cp", class_path, "SegmentClient", *arguments, seconds=1800)


@pytest.mark.parametrize("connections", [1, 4])
async def test_the_java_client_while_its_connections_are_cut(
    connections: int, java: str, own_segments: KafkaSettings, start: Receivers, tmp_path: Path
) -> None:
    """Nothing is lost or doubled, each key's events keep their order, segments read back byte-equal."""
    service = await start(own_segments)
    stream = uuid.uuid4().hex
    async with CuttingProxy(service.port, seed=connections) as proxy:
        said = await run(java, proxy.port, service.port, stream, SEGMENTS, EVENTS, connections, tmp_path)
        assert proxy.cuts > 5
    lengths = dict(line.rsplit(" ", 1) for line in said.splitlines() if line.startswith(f"scope/{stream}/"))
    assert len(lengths) == SEGMENTS
    by_key = defaultdict(list)
    stored: set[tuple[str, bytes]] = set()
    total = 0
    async with await TodayClient.connect(service.address) as client:
        for at in range(SEGMENTS):
            name = f"scope/{stream}/{at}.#epoch.0"
            data = await client.content(name)
            assert len(data) == int(lengths[name])
            content = unframed(data)
            assert content == heard(tmp_path / f"{at}.events")
            for event in content:
                by_key[number(event) % KEYS].append(event)
            stored |= {(name, event) for event in content}
            total += len(content)
    for key, found in by_key.items():
        assert found == [sent(n) for n in range(key, EVENTS, KEYS)]
    assert total == EVENTS
    records = await events(own_segments)
    assert {(record["ce_subject"], record.value) for record in records} == stored
    assert len({record.id for record in records}) == EVENTS  # whatever came twice has its id
