"""Events of the command line's clients, sent from a test that has no loop of its own."""

from __future__ import annotations

import asyncio

from headrace_cli.wire.sending import run
from headrace_cli.wire.source import ShopSource
from headrace_cli.wire.target import Target


def send_shop(protocol: str, host: str, port: int, events: int = 1, first: int = 0) -> None:
    """Returns when all are acknowledged."""
    tally = asyncio.run(run(Target(protocol, host, port), ShopSource(events, first)))
    assert tally.acknowledged == events, tally
