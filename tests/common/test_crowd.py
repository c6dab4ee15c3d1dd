"""Who leaves when connections are many, as a pure decision."""

from __future__ import annotations

import random

import pytest
from headrace_common.connection.addresses import Addresses, counted_as
from headrace_common.connection.crowd import MOST_LEAVING, SILENCE, Crowd, UnprovenConnection


def some(*heard: float, counted_as: str = "") -> tuple[Crowd, list[UnprovenConnection]]:
    crowd = Crowd()
    members = [UnprovenConnection(lambda: None, str(number), at, counted_as) for number, at in enumerate(heard)]
    for member in members:
        crowd.enter(member)
    return crowd, members


@pytest.mark.parametrize(
    ("taken", "silent", "leave"),
    [
        (0, SILENCE, 0),
        (50, SILENCE * 100, 0),  # half: nobody needs the place
        (51, SILENCE - 0.01, 0),
        (51, SILENCE, MOST_LEAVING),
        (99, SILENCE - 0.01, 0),
        (100, 0.0, 1),  # all: the longest silent, however short that is
        (100, SILENCE, MOST_LEAVING),
    ],
)
def test_who_leaves_depends_on_the_places_and_the_silence(taken: int, silent: float, leave: int) -> None:
    crowd, members = some(0.0, 0.0, 0.0)
    assert crowd.leaving(taken, 100, silent) == members[:leave]
    assert len(crowd) == 3 - leave


def test_the_longest_silent_goes_first_and_who_speaks_goes_last() -> None:
    crowd, members = some(0.0, 1.0, 2.0)
    crowd.heard(members[0], 3.0)
    assert [crowd.leaving(9, 9, 4.0)[0] for _ in range(3)] == [members[1], members[2], members[0]]
    assert crowd.leaving(9, 9, 4.0) == []


def test_a_silent_crowd_of_any_size_shuts_nobody_out() -> None:
    """A hostile host opens connections without end and says nothing; clients come, speak at once and stay."""
    chance, places, crowd = random.Random(7), 200, Crowd()
    silent, clients = places, 0
    for number in range(places):
        crowd.enter(UnprovenConnection(lambda: None, "hostile", float(number)))
    for now in range(places, 1000):
        gone = crowd.leaving(silent + clients, places, float(now))
        assert gone or silent + clients < places
        assert all(who.peer == "hostile" for who in gone)
        silent -= len(gone)
        who = UnprovenConnection(lambda: None, "hostile", float(now))
        crowd.enter(who)
        if chance.random() < 0.1 and clients < places // 2:
            crowd.remove(who)
            clients += 1
        else:
            silent += 1
        assert silent + clients <= places
    assert clients > places // 4


def test_of_an_address_the_longest_silent_leaves_wherever_its_name_came_from() -> None:
    """A balancer names its client after the connection has come."""
    crowd, members = some(0.0, 1.0, 2.0)
    for member in members:
        crowd.rename(member, "192.0.2.1", "192.0.2.1")
    crowd.enter(UnprovenConnection(lambda: None, "", 0.5, "192.0.2.2"))
    crowd.heard(members[0], 3.0)
    assert [crowd.leaving_of("192.0.2.1") for _ in members] == [members[1], members[2], members[0]]
    crowd.rename(members[0], "192.0.2.1", "192.0.2.1")  # it had left before its header was read
    assert crowd.leaving_of("192.0.2.1") is None
    assert len(crowd) == 1


class Counted(UnprovenConnection):
    """Counts how often crowds look at its members' addresses."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "counted_as":
            Counted.looks += 1
        return super().__getattribute__(name)


def test_a_full_address_costs_the_same_however_many_others_are_silent() -> None:
    looks = []
    for others in (10, 1000):
        crowd = Crowd()
        for number in range(others):
            crowd.enter(Counted(lambda: None, "", 0.0, f"192.0.2.{number}"))
        full = Counted(lambda: None, "", 0.0, "full")
        crowd.enter(full)
        Counted.looks = 0
        assert crowd.leaving_of("full") is full
        assert crowd.leaving_of("full") is None
        looks.append(Counted.looks)
    assert looks[0] == looks[1]


# Connections counted by address


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("unix", ""),
    ],
)
def test_what_an_address_counts_as(address: str, name: str) -> None:
    assert counted_as(address) == name


def test_an_address_has_what_it_may_have_and_others_too() -> None:
    """A network of IPv6 is one address."""
    addresses = Addresses(2)
    first = addresses.take("2001:db8::1")
    assert first is not None
    for another, left in (("2001:db8::2", True), ("2001:db8::3", False), ("2001:db8:0:1::1", True)):
        assert (addresses.take(another) is not None) is left
    addresses.give_back(first)
    assert [addresses.take("2001:db8::1") is None for _ in range(2)] == [False, True]
