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
    addresses = Addresses(2)
    first, second = addresses.take("192.0.2.1"), addresses.take("192.0.2.1")
    assert first is not None
    assert second is not None
    assert addresses.take("192.0.2.1") is None
    assert addresses.take("192.0.2.2") is not None
    addresses.give_back(first)
    assert addresses.take("192.0.2.1") is not None
    assert addresses.take("192.0.2.1") is None


def test_a_network_of_ipv6_is_one_client() -> None:
    addresses = Addresses(1)
    assert addresses.take("2001:db8::1") is not None
    assert addresses.take("2001:db8::2") is None
    assert addresses.take("2001:db8:0:1::1") is not None


def test_who_has_gone_is_forgotten() -> None:
    addresses = Addresses(2)
    for number in range(1000):
        taken = addresses.take(f"192.0.2.{number % 200}")
        assert taken is not None
        addresses.give_back(taken)
    assert len(addresses) == 0
