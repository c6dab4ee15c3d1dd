"""Rounds of real faults, and that their oracle finds what is broken."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from tests.contract.topic import Stored
from tests.faults.clients import DIALECTS, Frame, violations
from tests.faults.device import Numbers
from tests.faults.rounds import round_of
from tests.faults.stack import CLOCK, Stack


@pytest.mark.kafka
@pytest.mark.parametrize("brokers", [pytest.param(1, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.full)])
async def test_a_round_breaks_no_promise(tmp_path: Path, brokers: int) -> None:
    async with AsyncExitStack() as ending:
        stack = await Stack.start(tmp_path, ending, brokers)
        for faults in ((), *(("broker stopped",), ("leader killed",), ("broker moved",)) * (brokers > 1)):
            found = await round_of(stack, "1-0", 5, faults)
            assert found["problems"] == []
            assert found["frames"] > len(DIALECTS)


def record(content: str, number: int, name: str = "") -> Stored:
    headers = [("ce_id", (name or f"d.{content}").encode())]
    return Stored(0, number, 0, None, headers, b'{"mark":"m","n":%d,"token":"m/%d/"}' % (number, number))


SENT = [{"mark": "m", "n": n, "token": f"m/{n}/"} for n in range(2)]
WHOLE = [record("a", 0), record("b", 1)]
REJECT = Stored(0, 0, 0, None, [], b"..m/1/..")


@pytest.mark.parametrize(
    ("events", "rejects", "faulty", "problem"),
    [
        (WHOLE, [], False, ""),
        ([*WHOLE, WHOLE[1]], [], False, ""),  # sent again, under the same id
        (WHOLE[:1], [REJECT], False, ""),
        (WHOLE[:1], [], False, "nowhere"),
        ([*WHOLE, record("c", 2)], [], False, "never sent"),
        ([*WHOLE, record("other", 1)], [], False, "has the ids"),
        ([WHOLE[0], record("b", 1, "d.a")], [], False, "names"),
        (WHOLE, [], True, "not in quarantine"),
    ],
)
def test_what_is_broken_is_found(events: list[Stored], rejects: list[Stored], faulty: bool, problem: str) -> None:
    frame = Frame("forward", "m", SENT, faulty, acknowledged=True)
    found = violations([frame], events, rejects)
    assert problem in " ".join(found)
    assert bool(found) == bool(problem)
    assert violations([Frame("forward", "m", SENT, faulty)], events[:1], []) == []


def test_a_number_that_is_lost_in_silence_is_found() -> None:
    def heard(sequence: int, n: int) -> Stored:
        attributes = b'{"device":7,"sequence":%d,"start":1,"restarts":0,"consumer":"us"}' % sequence
        headers = [("ce_id", b"d.%d" % sequence), ("ce_type", b"headrace.logjam.event"), ("ce_attributes", attributes)]
        return Stored(0, 0, 0, None, headers, b'{"mark":"m","n":%d}' % n)

    device = SimpleNamespace(mark="m", sequence=6)
    numbers = Numbers(device)  # type: ignore[arg-type]
    numbers.read([heard(1, 1), heard(4, 4)])
    assert (sorted(numbers.lost), numbers.missing, numbers.problems) == ([2, 3], [5, 6], [])
    numbers.read([heard(5, 5), heard(6, 5)])
    assert numbers.missing == []
    assert len(numbers.problems) == 1


def test_the_clock_of_a_process_is_shifted_as_it_runs(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    code = "import sys, time; [print(int(time.time()), time.time_ns() // 10**9, flush=True) for line in sys.stdin]"
    env = {**os.environ, "PYTHONPATH": str(CLOCK), "HEADRACE_TEST_CLOCK": str(clock)}
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for shift in (-1_000_000, 0, 2_000_000):
            clock.write_text(str(shift))
            before = int(time.time())
            process.stdin.write(b"\n")
            process.stdin.flush()
            seen = [int(each) for each in process.stdout.readline().split()]
            after = int(time.time())
            assert all(before <= each - shift <= after for each in seen)
