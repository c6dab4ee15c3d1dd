"""Ids that are written down. They are kept for years: another one doubles what is sent again across an upgrade.

By which rule they are made is told by `tests/fuzz/truth`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_common.record.event import Reject
from headrace_courier.wire import jdat
from headrace_logjam.devices.consumer import SubscriptionMaker
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import read_published
from headrace_lumberjack.wire import json_frame, window

from tests.courier import driving as courier
from tests.driving import NOW_MS, Seen, finish, seen
from tests.forward import driving as forward
from tests.logjam import driving as logjam
from tests.logjam.test_vectors import frames
from tests.lumberjack import driving as lumberjack
from tests.segment import instant, speaking

TESTS = Path(__file__).parents[1]
Ways = Iterator[Iterable[Seen | Reject]]


def of_bytes(data: str) -> bytes:
    return bytes.fromhex(data)


def of_forward(case: dict[str, Any]) -> Ways:
    yield forward.every_way(of_bytes(case["message"])).flat


def of_lumberjack(case: dict[str, Any]) -> Ways:
    yield lumberjack.drive([window(1) + json_frame(1, case["event"].encode())]).flat


def of_courier(case: dict[str, Any]) -> Ways:
    for make in (jdat, courier.evnt):
        yield courier.every_way(make(of_bytes(case["nonce"]), [*map(of_bytes, case["events"])])).flat


def of_logjam(case: dict[str, Any]) -> Ways:
    app_env, topic, body = (case[name].encode() for name in ("app_env", "topic", "body"))
    for number in (0, 9):
        sent = logjam.event(body, case["method"], app_env=app_env, topic=topic, sequence=number, created_ms=number)
        yield from (logjam.drive(message).flat for message in (sent, logjam.asking(sent)))


def of_devices(case: dict[str, Any]) -> Ways:
    """Over the four frames as they came, so any consumer of any endpoint makes the same of a device with a number."""
    if "vector" in case:
        case = json.loads((TESTS / "logjam" / "vectors" / case["vector"]).read_text())[case["index"]]
    for endpoint, consumer in (("one", "a"), ("two", "b")):
        maker = SubscriptionMaker(endpoint, consumer, LogjamLimits())
        made = finish(maker.make(read_published(frames(case), endpoint), NOW_MS))
        assert isinstance(made, bytes)
        yield [seen(made)]


def of_segment(case: dict[str, Any]) -> Ways:
    writer, data = of_bytes(case["writer"]), [*map(of_bytes, case["events"])]
    blocks = [speaking.block(0, speaking.events(*data), writer)]
    if data:
        blocks.append(speaking.over_the_end(speaking.events(*data[:-1]), speaking.event(data[-1]), 5, writer))
    for block in blocks:
        yield instant.drive([speaking.setup(case["segment"], writer) + block]).flat


KNOWN = {
    "forward/ids.json": of_forward,
    "lumberjack/ids.json": of_lumberjack,
    "courier/ids.json": of_courier,
    "logjam/ids.json": of_logjam,
    "logjam/sub_ids.json": of_devices,
    "segment/ids.json": of_segment,
}


@pytest.mark.parametrize("file", KNOWN)
def test_an_id_is_what_it_was(file: str) -> None:
    cases = json.loads((TESTS / file).read_text())
    assert len(cases) >= 19
    for case in cases:
        for parts in KNOWN[file](case):
            ids = [part.id if isinstance(part, Seen) else part.id.decode() for part in parts]
            assert ids == case.get("ids", [case.get("id")]), case
