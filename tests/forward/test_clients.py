"""Real clients, as their own users would use them: nothing is lost, and what is doubled is what the documentation says."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from fluent.sender import FluentSender
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import Stored, events, own_topics
from tests.contract.waiting import PATIENCE, until
from tests.real_clients import NPM, built, run
from tests.system.proxy import Proxy
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(10 * PATIENCE)]  # the clients are built, too

COUNT = sized(2_000, 2_000, 20_000)
CLIENTS = Path(__file__).parent / "clients"
KEY = "open sesame"


@pytest.fixture(scope="session")
def golang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs `logger` and `forward`."""
    command = "go", "build", "-o", "bin/", "./logger", "./forward"
    return built(CLIENTS / "golang", tmp_path_factory.mktemp("golang"), *command) / "bin"


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(CLIENTS / "node", tmp_path_factory.mktemp("node"), *NPM) / "send.js"


async def stored_once(
    store: KafkaSettings, mark: str, tag: str, source: str = "/forward/127.0.0.1", count: int = COUNT
) -> list[Stored]:
    """All that the client sent is there, each event once, in its order."""
    records = await events(store, mark)
    all_once(records, tag, source, count)
    return records


def all_once(records: list[Stored], tag: str, source: str, count: int) -> None:
    """The events of one run of a client: each once, in its order."""
    doubled = {n: times for n, times in Counter(record.json["n"] for record in records).items() if times > 1}
    assert doubled == {}
    assert sorted(record.json["n"] for record in records) == list(range(count))
    assert {record["ce_subject"] for record in records} == {tag}
    assert {record["ce_source"] for record in records} == {source}
    assert [record.json["n"] for record in records] == list(range(count)), "a connection keeps its order"
    assert len({record.id for record in records}) == count


@pytest.fixture
def tls(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


GOLANG: dict[str, dict[str, Any]] = {
    "TLS": {"network": "tls"},
    "TLS, sub-second, acknowledged": {"network": "tls", "subSecond": True, "ack": True},
    "TLS, asynchronous, acknowledged": {"network": "tls", "async": True, "ack": True},
    "TLS, JSON, acknowledged": {"network": "tls", "json": True, "ack": True},
}


@pytest.mark.long
@pytest.mark.requires("go")
@pytest.mark.parametrize("name", GOLANG)
async def test_fluent_logger_golang(
    start: Receivers, store: KafkaSettings, golang: Path, tls: Authority, tmp_path: Path, name: str
) -> None:
    how = GOLANG[name]
    cert, key = tls.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key})
    mark = uuid.uuid4().hex
    order = {"host": "127.0.0.1", "port": receiver.port, "count": COUNT}
    await run(golang / "logger", json.dumps({**order, "tag": "go.app", "mark": mark, **how}))
    if not how.get("ack"):
        await receiver.drains()
    records = await stored_once(store, mark, "go.app")
    kind = "d." if how.get("ack") else "u."
    assert {record.id[:2] for record in records} == {kind}


@pytest.mark.long
@pytest.mark.requires("go")
@pytest.mark.parametrize("mode", ["MessageExt", "Forward", "PackedForward", "CompressedPackedForward"])
async def test_fluent_forward_go(
    start: Receivers, store: KafkaSettings, golang: Path, tls: Authority, mode: str
) -> None:
    cert, key = tls.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key}, forward={"shared_key": KEY})
    mark = uuid.uuid4().hex
    order = {"mode": mode, "network": "tls", "host": "127.0.0.1", "port": receiver.port}
    more = {"count": COUNT, "tag": "ibm.app", "mark": mark, "ack": True, "hostname": "agent-7", "batch": 250}
    with pytest.raises(AssertionError, match="handshake"):
        await run(golang / "forward", json.dumps({**order, **more, "sharedKey": "wrong"}))
    assert await events(store, mark) == []
    await run(golang / "forward", json.dumps({**order, **more, "sharedKey": KEY}))
    await stored_once(store, mark, "ibm.app", "/forward/agent-7")


@pytest.mark.long
@pytest.mark.requires("npm")
@pytest.mark.parametrize("mode", ["Message", "Forward", "PackedForward", "CompressedPackedForward"])
async def test_fluent_org_logger(start: Receivers, store: KafkaSettings, node: Path, tls: Authority, mode: str) -> None:
    """Shared key and user over TLS; in one mode with a certificate of its own, whose name comes before its word."""
    cert, key = tls.issue("server", "server")
    mutual = mode == "PackedForward"
    receiver = await start(
        tls={"cert": cert, "key": key, **({"client_ca": tls.file} if mutual else {})},
        forward={"shared_key": KEY, "users": json.dumps({"alice": "wonder"})},
    )
    mark = uuid.uuid4().hex
    security = {"clientHostname": "node-1", "sharedKey": KEY, "username": "alice", "password": "wonder"}
    order = {"eventMode": mode, "port": receiver.port, "security": security, "count": COUNT, "ca": str(tls.file)}
    if mutual:
        own = tls.issue("client", "from the certificate")
        order |= {"cert": str(own[0]), "key": str(own[1])}
    await run("node", node, json.dumps({**order, "tag": "node", "mark": mark}))
    await stored_once(store, mark, "node", "/forward/from%20the%20certificate" if mutual else "/forward/node-1")


# What they send again when an acknowledgement never reaches them: docs/protocols/forward.md says which collapse. Fluentd and
# Fluent Bit are in none of the registries: their resends, the same bytes once more, are in test_vectors.py.

FEW = 20


ORDER = {"network": "tcp", "host": "127.0.0.1", "count": FEW, "ack": True, "batch": 5}


async def ids(store: KafkaSettings, mark: str) -> dict[int, list[str]]:
    """The ids under which each event is on the topic."""
    found = defaultdict(list)
    for record in await events(store, mark):
        found[record.json["n"]].append(record.id)
    return found


async def unheard(
    store: KafkaSettings, address: tuple[str, int], *command: object, **order: Any
) -> dict[int, list[str]]:
    """A client whose first acknowledgement is withheld, and its connection cut; then nothing is in its way."""
    mark = uuid.uuid4().hex
    async with Proxy(address) as proxy:
        proxy.answers.clear()
        said = json.dumps({**ORDER, "port": proxy.port, "tag": "again", "mark": mark, **order})
        client = asyncio.create_task(run(*command, said))
        await until(lambda: proxy.withheld or client.done(), "the first acknowledgement is under way")
        assert not client.done(), await client
        assert await ids(store, mark), "what is acknowledged is stored"
        proxy.answers.set()
        proxy.cut()
        await client
    found = await ids(store, mark)
    assert sorted(found) == list(range(FEW)), "nothing is lost"
    assert any(len(names) > 1 for names in found.values()), "it has sent again what was stored"
    return found


def collapse(found: dict[int, list[str]]) -> bool:
    """Whether what came twice came under one name, all of it or none."""
    same = {len(set(names)) == 1 for names in found.values() if len(names) > 1}
    assert len(same) == 1
    return same.pop()


@pytest.mark.long
@pytest.mark.requires("go")
async def test_fluent_logger_golang_collapses(start: Receivers, store: KafkaSettings, golang: Path) -> None:
    receiver = await start()
    assert collapse(await unheard(store, receiver.address, golang / "logger", subSecond=True))


@pytest.mark.long
@pytest.mark.requires("go")
@pytest.mark.parametrize(("mode", "once"), [("Forward", False), ("Send", True)])
async def test_fluent_forward_go_does_not_retry_and_what_its_user_does_counts(
    start: Receivers, store: KafkaSettings, golang: Path, mode: str, once: bool
) -> None:
    """`SendForward` gives the same entries a new chunk; `Send` of the same message, packed once, keeps it."""
    receiver = await start()
    with pytest.raises(AssertionError, match="EOF"):
        await unheard(store, receiver.address, golang / "forward", mode=mode)
    found = await unheard(store, receiver.address, golang / "forward", mode=mode, again=True)
    assert collapse(found) is once


@pytest.mark.long
@pytest.mark.requires("npm")
async def test_fluent_org_logger_doubles(start: Receivers, store: KafkaSettings, node: Path) -> None:
    receiver = await start()
    order = {"eventMode": "Forward", "again": True, "ackTimeout": 5000}
    assert not collapse(await unheard(store, receiver.address, "node", node, **order))


async def test_fluent_logger_python_asks_for_nothing_and_sends_nothing_again(
    start: Receivers, store: KafkaSettings
) -> None:
    receiver = await start()
    mark = uuid.uuid4().hex
    async with Proxy(receiver.address) as proxy:
        sender = FluentSender("py", host="127.0.0.1", port=proxy.port, nanosecond_precision=True)

        def emit(*numbers: int) -> None:
            for n in numbers:
                sender.emit(None, {"mark": mark, "n": n})

        await asyncio.to_thread(emit, *range(10))

        async def stored() -> bool:
            return len(await ids(store, mark)) == 10

        await until(stored, "the first ten are stored")
        proxy.cut()
        await asyncio.to_thread(emit, *range(10, 20))  # what it writes first after the cut may be lost
        await asyncio.to_thread(sender.close)
    receiver.stop()
    found = await ids(store, mark)
    assert set(range(10)) <= set(found)
    assert all(len(names) == 1 for names in found.values())


@pytest.mark.long
@pytest.mark.requires("npm")
async def test_who_gives_up_at_its_own_default(own_kafka: EmbeddedKafka, start: Receivers, node: Path) -> None:
    """docs/protocols/forward.md names the setting: @fluent-org/logger waits for half a second."""
    store = own_topics(own_kafka.bootstrap)
    receiver = await start(store)
    mark = uuid.uuid4().hex
    order = {"eventMode": "Forward", "port": receiver.port, "count": 1, "tag": "t", "mark": mark, "defaults": True}
    with stopped(own_kafka.pid), pytest.raises(AssertionError, match="ack response timeout"):
        await run("node", node, json.dumps(order))
    await until(lambda: events(store, mark), "what the receiver still has goes to Kafka when Kafka goes on")
    await stored_once(store, mark, "t", count=1)
