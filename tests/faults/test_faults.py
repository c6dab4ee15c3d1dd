"""One round of real faults, that the oracle of it finds what is broken, and that the proxy changes what it should."""

from __future__ import annotations

import io
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.produce import ProduceResponse_v8
from aiokafka.protocol.types import Int32

from tests.contract.topic import Stored
from tests.faults.clients import Frame, violations
from tests.faults.proxy import rewritten
from tests.faults.rounds import DIALECTS, Stack, round_of


@pytest.mark.long
@pytest.mark.kafka
async def test_a_round_breaks_no_promise(tmp_path: Path) -> None:
    async with AsyncExitStack() as ending:
        stack = await Stack.start(tmp_path, random.Random(1), ending)
        found = await round_of(stack, "1-0", 5)
    assert found["problems"] == []
    assert found["frames"] > len(DIALECTS)


def record(content: str, number: int, name: str = "") -> Stored:
    headers = [("ce_id", (name or f"d.{content}").encode())]
    return Stored(0, number, 0, None, headers, b'{"mark":"m","n":%d,"token":"m/%d/"}' % (number, number))


SENT = [{"mark": "m", "n": n, "token": f"m/{n}/"} for n in range(2)]
WHOLE = [record("a", 0), record("b", 1)]


@pytest.mark.parametrize(
    ("events", "rejects", "problem"),
    [
        (WHOLE, [], ""),
        ([*WHOLE, WHOLE[1]], [], ""),  # sent again, under the same id
        (WHOLE[:1], [Stored(0, 0, 0, None, [], b"..m/1/..")], ""),
        (WHOLE[:1], [], "nowhere"),
        ([*WHOLE, record("c", 2)], [], "never sent"),
        ([*WHOLE, record("other", 1)], [], "has the ids"),
        ([WHOLE[0], record("b", 1, "d.a")], [], "names"),
    ],
)
def test_what_is_broken_is_found(events: list[Stored], rejects: list[Stored], problem: str) -> None:
    frame = Frame("forward", "m", SENT, faulty=False, acknowledged=True)
    found = violations([frame], events, rejects, dict(DIALECTS))
    assert problem in " ".join(found)
    assert bool(found) == bool(problem)
    assert violations([Frame("forward", "m", SENT, faulty=False)], events[:1], [], dict(DIALECTS)) == []


def test_a_fault_that_is_not_in_quarantine_is_found() -> None:
    frame = Frame("forward", "m", SENT, faulty=True, acknowledged=True)
    (problem,) = violations([frame], WHOLE, [], dict(DIALECTS))
    assert "not in quarantine" in problem


def test_only_success_is_rewritten() -> None:
    def answer(*errors: int) -> bytes:
        partitions: list[Any] = [(number, error, 7, -1, 0, [], None) for number, error in enumerate(errors)]
        return Int32.encode(42) + ProduceResponse_v8.SCHEMA.encode(([("t", partitions)], 0))

    expected = answer(0, 6)
    assert len(rewritten(expected, 8, 19)) == len(expected)
    (((_, partitions),), _) = ProduceResponse_v8.SCHEMA.decode(io.BytesIO(rewritten(expected, 8, 19)[4:]))
    assert [(number, error) for number, error, *_ in partitions] == [(0, 19), (1, 6)]
    assert rewritten(expected, 8, 19)[:4] == expected[:4]
