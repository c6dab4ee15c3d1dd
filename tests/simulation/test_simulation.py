"""Seeds: all pass, and one means the same each time. What else would fail is in `test_mutants.py`."""

from __future__ import annotations

import pytest

from tests.native import CORES, using
from tests.simulation.__main__ import run
from tests.simulation.protocols import PROTOCOLS
from tests.tiers import sized

EACH = sized(13, 25, 25)
"""Seeds of one test: so that workers share them, and cores take turns."""

SEEDS = sized(26, 100, 20_000)
"""Seven of eight mutants are found by a seed below 26."""


@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_seed_breaks_a_promise(protocol: str, first: int) -> None:
    core = CORES[first // EACH % len(CORES)]
    with using(core):
        failed = {
            seed: found.failures for seed in range(first, first + EACH) if (found := run(seed, protocol)).failures
        }
    assert not failed, f"python -m tests.simulation --protocol {protocol} --core {core} --seed {min(failed)}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_seed_means_the_same_each_time(protocol: str) -> None:
    for seed in range(8, sized(10, 12, 16)):
        first, again = (run(seed, protocol, traced=True) for _ in range(2))
        assert first.trace == again.trace
        assert first.seconds == again.seconds
