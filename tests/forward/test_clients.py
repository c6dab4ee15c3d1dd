"""Real clients, as their own users would use them: nothing is lost, and what is doubled is what the documentation says."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fluent.sender import FluentSender
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.real_clients import NPM, built, run
from tests.system.proxy import Proxy
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(10 * PATIENCE)]  # the clients are built, too

COUNT = sized(500, 500, 20_000)
CLIENTS = Path(__file__).parent / "clients"
KEY = "open sesame"
MODES = "Forward", "PackedForward", "CompressedPackedForward"


@pytest.fixture(scope="session")
def golang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs `logger` and `forward`."""
    command = "go", "build", "-o", "bin/", "./logger", "./forward"
    return built(CLIENTS / "golang", tmp_path_factory.mktemp("golang"), *command) / "bin"


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(CLIENTS / "node", tmp_path_factory.mktemp("node"), *NPM) / "send.js"


@pytest.fixture
def command(request: pytest.FixtureRequest) -> Callable[[str], list[object]]:
    """What runs a program."""

    def of(program: str) -> list[object]:
        value = request.getfixturevalue
        return ["node", value("node")] if program == "node" else [value("golang") / program]

    return of


def row(program: str, *values: Any, name: str = "") -> Any:
    needs = pytest.mark.requires("npm" if program == "node" else "go")
    return pytest.param(program, *values, marks=[pytest.mark.long, needs], id=f"{program} {name}".strip())


LOCAL, USERS = "/forward/127.0.0.1", json.dumps({"alice": "wonder"})
IBM = {"sharedKey": KEY, "ack": True, "hostname": "agent-7", "batch": 250}
NODE = {"security": {"clientHostname": "node-1", "sharedKey": KEY, "username": "alice", "password": "wonder"}}
OVER_TLS = [
    *(
        row("logger", order, {}, LOCAL, kind, name=" ".join(order) or "plain")
        for order, kind in (
            ({}, "u."), *(({each: True, "ack": True}, "d.") for each in ("subSecond", "async", "json")),
        )
    ),
    *(
        row("forward", {"mode": mode, **IBM}, {"shared_key": KEY}, "/forward/agent-7", "", name=mode)
        for mode in ("MessageExt", *MODES)
    ),
    *(
        row("node", {"eventMode": mode, **NODE}, {"shared_key": KEY, "users": USERS}, "/forward/node-1", "", name=mode)
        for mode in ("Message", *MODES)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("program", "order", "forward", "source", "kind"), OVER_TLS)
async def test_all_that_a_client_sends_is_there_in_order(
    start: Receivers, store: KafkaSettings, tmp_path: Path, command: Callable[[str], list[object]],
    program: str, order: dict[str, Any], forward: dict[str, Any], source: str, kind: str,
) -> None:  # fmt: skip
    """One has a certificate of its own, whose name comes before its word."""
    tls, mark = Authority(tmp_path), uuid.uuid4().hex
    cert, key = tls.issue("server", "server")
    mutual = order.get("eventMode") == "PackedForward"
    receiver = await start(
        tls={"cert": cert, "key": key, **({"client_ca": tls.file} if mutual else {})}, forward=forward
    )
    more = {"network": "tls", "host": "127.0.0.1", "port": receiver.port, "count": COUNT, "tag": "app", "mark": mark}
    order = more | {"ca": str(tls.file)} | order
    if mutual:
        source, own = "/forward/from%20the%20certificate", tls.issue("client", "from the certificate")
        order |= {"cert": str(own[0]), "key": str(own[1])}
    if "sharedKey" in order:
        with pytest.raises(AssertionError, match="handshake"):
            await run(*command(program), json.dumps(order | {"sharedKey": "wrong"}))
        assert await events(store, mark) == []
    await run(*command(program), json.dumps(order))
    if kind == "u.":
        await receiver.drains()
    records = await events(store, mark)
    assert [record.json["n"] for record in records] == list(range(COUNT))
    assert {(record["ce_subject"], record["ce_source"]) for record in records} == {("app", source)}
    assert len({record.id for record in records}) == COUNT
    assert all(record.id.startswith(kind) for record in records)


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


AGAIN = [
    row("logger", {"subSecond": True}, True),
    row("forward", {"mode": "Forward"}, False, name="with a new chunk for the same entries"),
    row("forward", {"mode": "Send"}, True, name="of the same message, packed once"),
    row("node", {"eventMode": "Forward", "again": True, "ackTimeout": 5000}, False),
]


@pytest.mark.parametrize(("program", "order", "once"), AGAIN)
async def test_whether_what_is_sent_again_collapses(
    start: Receivers, store: KafkaSettings, command: Callable[[str], list[object]], program: str, order: dict[str, Any],
    once: bool,
) -> None:  # fmt: skip
    receiver = await start()
    if program == "forward":  # it does not retry: what its user does counts
        with pytest.raises(AssertionError, match="EOF"):
            await unheard(store, receiver.address, *command(program), **order)
        order = {**order, "again": True}
    assert collapse(await unheard(store, receiver.address, *command(program), **order)) is once


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
async def test_who_gives_up_at_its_own_default(
    kafka: EmbeddedKafka, store: KafkaSettings, start: Receivers, node: Path
) -> None:
    """docs/protocols/forward.md names the setting: @fluent-org/logger waits for half a second."""
    receiver = await start()
    mark = uuid.uuid4().hex
    order = {"eventMode": "Forward", "port": receiver.port, "count": 1, "tag": "t", "mark": mark, "defaults": True}
    with stopped(kafka.pid), pytest.raises(AssertionError, match="ack response timeout"):
        await run("node", node, json.dumps(order))
    await until(lambda: events(store, mark), "what the receiver still has goes to Kafka when Kafka goes on")
    assert len(await events(store, mark)) == 1
