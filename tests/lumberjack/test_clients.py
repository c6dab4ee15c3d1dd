"""Real clients: what they send is on the topic once, in order.

github.com/elastic/go-lumber's client is the library inside Beats.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import Stored, events, in_order, quarantined
from tests.real_clients import NPM, built, run
from tests.tiers import sized

PATIENCE = 700
"""Seconds that a client's run may take: a client that waits for each event waits 5,000 times."""

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(3 * PATIENCE)]

COUNT = sized(500, 500, 5_000)
MANY = sized(20_000, 20_000, 200_000)
CLIENTS = Path(__file__).parent / "clients"
COMBINATIONS = {
    f"{mode}-{level}-{transport}-{window}"
    for mode in ("sync", "async")
    for level in (0, 3)
    for transport in ("plain", "tls")
    for window in (1, 7, 2048)
}


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(CLIENTS / "go", tmp_path_factory.mktemp("go"), "go", "build", "-o", "clients", ".") / "clients"


async def report(client: Path, *arguments: object) -> dict[str, dict[str, Any]]:
    """What the clients say of themselves, by their names."""
    out = await run(client, *arguments, seconds=PATIENCE)
    return {told["name"]: told for told in map(json.loads, out.splitlines())}


def once_and_in_order(records: list[Stored], names: set[str], count: int) -> None:
    """Each client's events are there exactly once, in its order, on one partition, each with an id of its own."""
    in_order(records)
    by_name: dict[str, list[Stored]] = defaultdict(list)
    for record in records:
        by_name[record.json["name"]].append(record)
    assert by_name.keys() == names
    for mine in by_name.values():
        assert [record.json["n"] for record in mine] == list(range(count))
        assert len({record.partition for record in mine}) == 1
    ids = {record.id for record in records}
    assert len(ids) == len(records)
    assert all(name.startswith("d.") for name in ids)


@pytest.mark.requires("go")
async def test_go_lumber(topics: KafkaSettings, client: Path, tmp_path: Path) -> None:
    """Sync and async, with and without compression and TLS, windows of 1, 7 and 2,048, all at the same time; then many
    events over one connection.
    """
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    with Receivers("lumberjack", topics, tmp_path) as start:
        plain, secure = await start(), await start(tls={"cert": cert, "key": key})
        mark = uuid.uuid4().hex
        where = ("-plain", f"127.0.0.1:{plain.port}", "-tls", f"127.0.0.1:{secure.port}", "-ca", authority.file)
        told = await report(client, *where, "-count", COUNT, mark)
        assert told.keys() == COMBINATIONS
        for name, each in told.items():
            assert (each["problem"], each["acknowledged"]) == ("", COUNT), name
        records = await events(topics)
        once_and_in_order(records, COMBINATIONS, COUNT)
        for record in records[::997]:
            assert record.json["message"].endswith('"ünï <日本> &"')
            assert (record["ce_subject"], record["ce_source"]) == ("filebeat", "/lumberjack/vm")

        name = "async-3-tls-2048"
        mark = uuid.uuid4().hex
        told = await report(client, *where, "-count", MANY, "-only", name, mark)
        assert (told[name]["problem"], told[name]["acknowledged"]) == ("", MANY)
        once_and_in_order(await events(topics, mark), {name}, MANY)
        assert await quarantined(topics) == []
        for receiver in (plain, secure):
            assert receiver.lines("protocol error") == []


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(CLIENTS / "node", tmp_path_factory.mktemp("node"), *NPM) / "send.js"


@pytest.mark.requires("npm")
async def test_lumberjack_protocol(topics: KafkaSettings, node: Path, tmp_path: Path) -> None:
    """A v1 client that announces its window once, and streams: an acknowledgement for each hundred, and nothing else."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    mark = uuid.uuid4().hex
    with Receivers("lumberjack", topics, tmp_path) as start:
        receiver = await start(tls={"cert": cert, "key": key})
        out = await run("node", node, "v1", receiver.port, authority.file, mark, COUNT, seconds=PATIENCE)
    assert json.loads(out) == list(range(100, COUNT + 1, 100))
    records = await events(topics, mark)
    meant = [{"line": f"line {n} – ü", "mark": mark, "n": str(n), "host": "node"} for n in range(COUNT)]
    assert [record.json for record in records] == meant
    assert {record["ce_source"] for record in records} == {"/lumberjack/node"}
    assert len({record.id for record in records}) == COUNT


@pytest.mark.requires("npm")
async def test_lumberjack_client(topics: KafkaSettings, node: Path, tmp_path: Path) -> None:
    """A v2 client that reads no acknowledgement."""
    mark = uuid.uuid4().hex
    with Receiver("lumberjack", topics, tmp_path) as receiver:
        await receiver.start()
        process = await asyncio.create_subprocess_exec(
            "node", node, "v2", str(receiver.port), "-", mark, str(COUNT), stdin=subprocess.PIPE
        )
        await receiver.shows(COUNT, "events_stored_total")
        await asyncio.wait_for(process.communicate(b""), PATIENCE)
    assert process.returncode == 0
    records = await events(topics, mark)
    assert [record.json for record in records] == [
        {"mark": mark, "n": n, "message": f"line {n} – ü"} for n in range(COUNT)
    ]
