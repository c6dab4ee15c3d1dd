"""What real clients send again when an acknowledgement never reaches them: docs/protocols/forward.md says which collapse.

Fluentd and Fluent Bit are in none of the registries: their resends, the same bytes once more, are in test_ids.py.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fluent.sender import FluentSender
from headrace_common.operations.settings import KafkaSettings

from tests.contract.topic import events
from tests.contract.waiting import until
from tests.forward.test_clients import golang, node
from tests.real_clients import run
from tests.system.proxy import Proxy

pytestmark = pytest.mark.kafka

__all__ = ["golang", "node"]  # fixtures

COUNT = 20
ORDER = {"network": "tcp", "host": "127.0.0.1", "count": COUNT, "ack": True, "batch": 5}


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
    assert sorted(found) == list(range(COUNT)), "nothing is lost"
    assert any(len(names) > 1 for names in found.values()), "it has sent again what was stored"
    return found


def collapse(found: dict[int, list[str]]) -> bool:
    """Whether what came twice came under one name, all of it or none."""
    same = {len(set(names)) == 1 for names in found.values() if len(names) > 1}
    assert len(same) == 1
    return same.pop()


@pytest.mark.long
@pytest.mark.requires("go")
async def test_fluent_logger_golang_collapses(start, store: KafkaSettings, golang: Path) -> None:
    receiver = await start()
    assert collapse(await unheard(store, receiver.address, golang / "logger", subSecond=True))


@pytest.mark.long
@pytest.mark.requires("go")
@pytest.mark.parametrize(("mode", "once"), [("Forward", False), ("Send", True)])
async def test_fluent_forward_go_does_not_retry_and_what_its_user_does_counts(
    start, store: KafkaSettings, golang: Path, mode: str, once: bool
) -> None:
    """`SendForward` gives the same entries a new chunk; `Send` of the same message, packed once, keeps it."""
    receiver = await start()
    with pytest.raises(AssertionError, match="EOF"):
        await unheard(store, receiver.address, golang / "forward", mode=mode)
    found = await unheard(store, receiver.address, golang / "forward", mode=mode, again=True)
    assert collapse(found) is once


@pytest.mark.long
@pytest.mark.requires("npm")
async def test_fluent_org_logger_doubles(start, store: KafkaSettings, node: Path) -> None:
    receiver = await start()
    order = {"eventMode": "Forward", "again": True, "ackTimeout": 5000}
    assert not collapse(await unheard(store, receiver.address, "node", node, **order))


async def test_fluent_logger_python_asks_for_nothing_and_sends_nothing_again(start, store: KafkaSettings) -> None:
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
