"""Each tier runs what the one before it runs."""

from __future__ import annotations

import pytest

from tests.tiers import Tier, runs


@pytest.mark.parametrize(
    ("markers", "tiers"),
    [
        (set(), [Tier.QUICK, Tier.ALL, Tier.FULL]),
        ({"kafka"}, [Tier.QUICK, Tier.ALL, Tier.FULL]),
        ({"long"}, [Tier.ALL, Tier.FULL]),
        ({"full"}, [Tier.FULL]),
        ({"long", "full"}, [Tier.FULL]),
    ],
)
def test_each_tier_runs_what_the_one_before_it_runs_and_more(markers: set[str], tiers: list[Tier]) -> None:
    assert [tier for tier in Tier if runs(tier, markers)] == tiers
