"""Which connection leaves for a newcomer."""

from __future__ import annotations

import pytest
from headrace_common.connection.places import LOOK, Place, Places


def places(*names: str) -> tuple[Places, list[Place]]:
    found, made = Places(len(names)), [Place(lambda: None, name) for name in names]
    for each in made:
        found.take(each)
    return found, made


def leaving(found: Places) -> str | None:
    place = found.make_way()
    return None if place is None else place.peer


def test_the_longest_idle_leaves_first_and_only_once() -> None:
    found, (first, second, _) = places("first", "second", "third")
    found.heard(first)
    found.give_back(second)
    found.give_back(second)
    assert [leaving(found) for _ in range(3)] == ["third", "first", None]
    found.heard(first)  # it has left
    assert len(found) == 0


def test_who_is_owed_something_stays_and_is_not_looked_at_again_before_all_others() -> None:
    found, (first, _, third) = places("first", "second", "third")
    first.is_owed = third.is_owed = lambda: True
    assert [leaving(found) for _ in range(2)] == ["second", None]
    third.is_owed = lambda: False
    assert leaving(found) == "third"


@pytest.mark.parametrize("crowd", [1_000, 10_000])
def test_a_newcomer_costs_the_same_however_many_are_owed_something(crowd: int) -> None:
    looks = 0

    def owed() -> bool:
        nonlocal looks
        looks += 1
        return True

    found = Places(crowd)
    for _ in range(crowd):
        found.take(Place(lambda: None, "", owed))
    assert found.make_way() is None
    assert looks == LOOK
