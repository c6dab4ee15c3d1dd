"""Connections counted by address."""

from __future__ import annotations

import pytest
from headrace_common.connection.addresses import Addresses, counted_as


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


def test_who_has_gone_is_forgotten() -> None:
    addresses = Addresses(2)
    for number in range(1000):
        taken = addresses.take(f"192.0.2.{number % 200}")
        assert taken is not None
        addresses.give_back(taken)
    assert len(addresses) == 0
