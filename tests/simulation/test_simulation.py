"""Seeds: all pass, one means the same each time, and a receiver that breaks its promise fails them."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from typing import Any

import pytest
from headrace_common.publishing.delivery import Delivery, Refusal

from tests.native import using
from tests.simulation.__main__ import main, run
from tests.simulation.loop import WORLD, Mortal, SimulatedLoop
from tests.simulation.protocols import PROTOCOLS, STREAMS
from tests.simulation.scenario import Fault
from tests.simulation.shapes import draw
from tests.simulation.world import World
from tests.tiers import sized

EACH = 25
"""Seeds of one test: so that workers share them."""

SEEDS = sized(100, 500, 20_000)


@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_seed_breaks_a_promise(protocol: str, first: int) -> None:
    failed = {seed: result.failures for seed in range(first, first + EACH) if (result := run(seed, protocol)).failures}
    assert not failed, f"python -m tests.simulation --protocol {protocol} --trace --seed {min(failed)}"


@pytest.mark.parametrize("first", range(0, sized(50, SEEDS, SEEDS), EACH))
def test_no_seed_breaks_a_promise_with_the_native_core(first: int) -> None:
    with using("native"):
        failed = {
            seed: found.failures for seed in range(first, first + EACH) if (found := run(seed, "forward")).failures
        }
    assert not failed, f"python -m tests.simulation --protocol forward --core native --trace --seed {min(failed)}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_seed_means_the_same_each_time(protocol: str) -> None:
    for seed in range(8, sized(12, 16, 16)):
        first, again = (run(seed, protocol, traced=True) for _ in range(2))
        assert first.trace == again.trace
        assert first.seconds == again.seconds


def test_a_failure_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--protocol", "courier", "--seed", "0"])
    assert main() == 0
    failed = replace(run(0, "courier"), failures=["of one"])
    monkeypatch.setattr(World, "run", lambda _: failed)
    assert main() == 1


def test_a_simulated_process_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    World(replace(draw(1, "forward"), faults=(Fault("kill", 1.0, 0.0, 20),))).run()
    assert threading.active_count() <= before  # another test's may end meanwhile


@pytest.mark.parametrize("protocol", STREAMS)
def test_who_acknowledges_before_kafka_has_stored_is_found(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: Any) -> list[Refusal]:
        return []

    monkeypatch.setattr(Delivery, "store", at_once)
    for seed in range(5):
        assert any("is not stored" in failure for failure in run(seed, protocol).failures)


@pytest.mark.parametrize("timers_first", [False, True])
def test_a_process_that_is_held_up_runs_when_it_goes_on(timers_first: bool) -> None:
    loop, owner, ran = SimulatedLoop(random.Random(1)), Mortal(), list[str]()  # type: ignore[abstract]

    async def story() -> None:
        owner.held = []
        loop.call_later(2.0, ran.append, "timer", context=owner.context)
        loop.call_soon(ran.append, "ready", context=owner.context)
        loop.call_later(1.0, lambda: loop.hold(owner, lambda: ran.append("arrival")), context=WORLD.copy())
        await asyncio.sleep(3.0)
        assert not ran
        loop.go_on(owner, timers_first=timers_first)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run(story())
    assert ran == (["ready", "timer", "arrival"] if timers_first else ["ready", "arrival", "timer"])
    assert not loop.hold(owner, lambda: None)


def test_a_client_that_waits_in_vain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> list[Refusal]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(Delivery, "store", never)
    monkeypatch.setattr("tests.simulation.world.RECOVERY", 60.0)
    assert any("has not been served" in failure for failure in World(draw(1, "forward")).run().failures)
