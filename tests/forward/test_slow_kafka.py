"""Real clients while Kafka stands still and goes on in turns: nobody gives up, nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fluent.sender import FluentSender

from tests.contract.embedded import EmbeddedKafka
from tests.contract.stopping import stopped
from tests.contract.topic import events, own_topics
from tests.contract.waiting import PATIENCE
from tests.forward.test_clients import KEY, all_once, golang, node, stored_once
from tests.real_clients import run
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(10 * PATIENCE)]  # the clients are built, too

__all__ = ["golang", "node"]  # fixtures

SECONDS = sized(6, 6, 60)
COUNT = 200
"""Events that a client sends in one run; it runs again and again."""

STANDS, GOES, PAUSE = 2.0, 0.3, 0.5


def python(port: int, tag: str, mark: str) -> None:
    """Asks for no acknowledgement, so it waits for none."""
    sender = FluentSender(tag, host="127.0.0.1", port=port, nanosecond_precision=True, bufmax=64 << 20)
    for n in range(COUNT):
        assert sender.emit(None, {"mark": mark, "n": n})
    sender.close()


@pytest.mark.requires("go", "npm")
async def test_clients_wait_for_a_slow_kafka(own_kafka: EmbeddedKafka, start, golang: Path, node: Path) -> None:
    store = own_topics(own_kafka.bootstrap)
    receiver = await start(store)
    keyed = await start(store, forward={"shared_key": KEY})
    base = {"network": "tcp", "host": "127.0.0.1", "count": COUNT, "ack": True, "batch": 10}

    def go(tag: str, mark: str) -> Awaitable[None]:
        return run(golang / "logger", json.dumps({**base, "port": receiver.port, "tag": tag, "mark": mark}))

    def ibm(tag: str, mark: str) -> Awaitable[None]:
        login = {"port": keyed.port, "sharedKey": KEY, "hostname": "ibm", "mode": "PackedForward"}
        return run(golang / "forward", json.dumps({**base, **login, "tag": tag, "mark": mark}))

    def js(tag: str, mark: str) -> Awaitable[None]:
        order = {"eventMode": "Forward", "port": receiver.port, "count": COUNT, "tag": tag, "mark": mark}
        return run("node", node, json.dumps(order))

    def py(tag: str, mark: str) -> Awaitable[None]:
        return asyncio.to_thread(python, receiver.port, tag, mark)

    until = time.monotonic() + SECONDS
    sent: list[tuple[str, str]] = []

    async def again_and_again(tag: str, client: Callable[[str, str], Awaitable[None]]) -> None:
        while time.monotonic() < until:
            sent.append((tag, uuid.uuid4().hex))
            await client(*sent[-1])
            await asyncio.sleep(PAUSE)

    clients = asyncio.gather(
        again_and_again("slow.go", go),
        again_and_again("slow.ibm", ibm),
        again_and_again("slow.node", js),
        again_and_again("slow.py", py),
    )
    while time.monotonic() < until:
        with stopped(own_kafka.pid):
            await asyncio.sleep(STANDS)
        await asyncio.sleep(GOES)
    await clients
    await receiver.drains()  # one asks for no acknowledgement
    assert {tag for tag, _ in sent} == {"slow.go", "slow.ibm", "slow.node", "slow.py"}
    records = await events(store)
    for tag, mark in sent:
        source = "/forward/ibm" if tag == "slow.ibm" else "/forward/127.0.0.1"
        all_once([record for record in records if record.json["mark"] == mark], tag, source, COUNT)


@pytest.mark.requires("npm")
async def test_who_gives_up_at_its_own_default(own_kafka: EmbeddedKafka, start, node: Path) -> None:
    """docs/protocols/forward.md names the setting: @fluent-org/logger waits for half a second."""
    store = own_topics(own_kafka.bootstrap)
    receiver = await start(store)
    mark = uuid.uuid4().hex
    order = {"eventMode": "Forward", "port": receiver.port, "count": 1, "tag": "t", "mark": mark, "defaults": True}
    with stopped(own_kafka.pid), pytest.raises(AssertionError, match="ack response timeout"):
        await run("node", node, json.dumps(order))
    async with asyncio.timeout(PATIENCE):  # what the receiver still has goes to Kafka when Kafka goes on
        while not await events(store, mark):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await stored_once(store, mark, "t", count=1)
