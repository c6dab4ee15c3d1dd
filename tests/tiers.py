"""The three tiers, and what depends on them: sizes and numbers of examples.

The option ``--tier`` chooses one; `tests/conftest.py` reads it before any test module is imported. Nothing else reads it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")


class Tier(StrEnum):
    """Each runs what the one before it runs, and more."""

    QUICK = "quick"
    ALL = "all"
    FULL = "full"


EXAMPLES: Final = {Tier.QUICK: 50, Tier.ALL: 200, Tier.FULL: 1000}
"""How many examples a property is tried on that names no number of its own. Each tier has a Hypothesis profile of its name."""

MARKS: Final = {Tier.QUICK: "not long and not full", Tier.ALL: "not full", Tier.FULL: ""}
"""Which tests belong to a tier, as pytest's ``-m`` has it."""

_chosen = Tier.ALL


def choose(tier: Tier) -> None:
    """Make `tier` the one that runs, and load its Hypothesis profile."""
    global _chosen
    _chosen = tier
    for name, count in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            derandomize=name is not Tier.FULL,  # the same ones each time: whether a change passes is no matter of luck
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            print_blob=True,
        )
    settings.load_profile(tier)


def chosen() -> Tier:
    return _chosen


def sized(quick: T, most: T, full: T) -> T:
    """The size for the tier that runs."""
    return {Tier.QUICK: quick, Tier.ALL: most, Tier.FULL: full}[_chosen]


def examples(full: int) -> int:
    """How many examples to try: `full` in the tier of that name, and the profile's share of it in the others."""
    return max(1, full * EXAMPLES[_chosen] // EXAMPLES[Tier.FULL])
