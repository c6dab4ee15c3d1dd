"""The receivers that `up` starts, one for each protocol that is installed, and the ports of what is beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace_common.protocol import installed

from headrace_cli.ground import CommandError

SERVICES: Final = installed()
KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
LAKE_OPS_PORT: Final = 8086
LIVE_PORT: Final = 8080
LAKE_MODULE: Final = "headrace_lake"
EVENTS_PARTITIONS: Final = 4
SEGMENTS_PARTITIONS: Final = 4
"""Partitions of these topics on a laptop. The defaults for clusters are in `headrace_common.operations.settings`."""


def check_protocols(names: Iterable[str]) -> None:
    """Raise `CommandError` for a ``--protocol`` that is not installed."""
    known = [service.name for service in SERVICES]
    for name in names:
        if name not in known:
            raise CommandError(f"--protocol {name}: it is one of {', '.join(known)}.", status=2)
