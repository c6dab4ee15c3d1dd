"""Real clients, as their own users would use them: nothing is lost, and what is doubled is what the documentation says."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.topic import Stored, events
from tests.contract.waiting import PATIENCE
from tests.real_clients import NPM, built, run
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(10 * PATIENCE)]  # the clients are built, too

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


GOLANG = {
    "TLS": {"network": "tls"},
    "TLS, sub-second, acknowledged": {"network": "tls", "subSecond": True, "ack": True},
    "TLS, asynchronous, acknowledged": {"network": "tls", "async": True, "ack": True},
    "TLS, JSON, acknowledged": {"network": "tls", "json": True, "ack": True},
    "Unix socket, acknowledged": {"network": "unix", "ack": True},
}


@pytest.mark.requires("go")
@pytest.mark.parametrize("name", GOLANG)
async def test_fluent_logger_golang(
    start, store: KafkaSettings, golang: Path, tls: Authority, tmp_path: Path, name: str
) -> None:
    how = GOLANG[name]
    cert, key = tls.issue("server", "server")
    socket = tmp_path / "forward.sock"
    receiver = await start(tls={"cert": cert, "key": key}, listen={"socket": socket})
    mark = uuid.uuid4().hex
    order = {"host": "127.0.0.1", "port": receiver.port, "path": str(socket), "count": COUNT}
    await run(golang / "logger", json.dumps({**order, "tag": "go.app", "mark": mark, **how}))
    if not how.get("ack"):
        await receiver.drains()
    source = "/forward/127.0.0.1"
    if how["network"] == "unix":
        source = f"/forward/{os.uname().nodename}"
    records = await stored_once(store, mark, "go.app", source)
    kind = "d." if how.get("ack") else "u."
    assert {record.id[:2] for record in records} == {kind}


@pytest.mark.requires("go")
@pytest.mark.parametrize("mode", ["MessageExt", "Forward", "PackedForward", "CompressedPackedForward"])
async def test_fluent_forward_go(start, store: KafkaSettings, golang: Path, tls: Authority, mode: str) -> None:
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


@pytest.mark.requires("npm")
@pytest.mark.parametrize("mode", ["Message", "Forward", "PackedForward", "CompressedPackedForward"])
async def test_fluent_org_logger(start, store: KafkaSettings, node: Path, tls: Authority, mode: str) -> None:
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
