"""The chart on a real node, from its installation to its removal: each step ends, and nothing is lost or doubled.

The nodes have the images. Where the cluster has no storage class, HEADRACE_TEST_VOLUMES names a folder of its only node, which is
this machine, for volumes.
"""

from __future__ import annotations

import pytest

from tests.helm.operations import operate

LONG = 3600
"""Seconds. Not a guess about speed: each step ends when the thing is there."""

pytestmark = [pytest.mark.requires("helm", "k8s", "node", "go"), pytest.mark.full, pytest.mark.timeout(LONG)]


def test_nothing_is_lost_or_doubled_from_installation_to_removal() -> None:
    clients = operate()["clients"]
    assert {name: (each["lost"], each["doubled"]) for name, each in clients.items()} == dict.fromkeys(clients, (0, 0))
