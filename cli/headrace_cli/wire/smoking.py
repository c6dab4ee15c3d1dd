"""Sends one event by each protocol, and finds it on the events topic."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Final

from headrace_common.kafka.client import describe
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.settings import KafkaSettings

from headrace_cli import console
from headrace_cli.operating.topic import TopicReader, reading
from headrace_cli.options import NOW
from headrace_cli.wire.sending import run
from headrace_cli.wire.source import RateSource
from headrace_cli.wire.target import Target, client_of, over_zeromq, parse_address

AGAIN: Final = 0.5
"""Seconds until a Kafka that could not be reached is asked again."""


def parse(targets: Sequence[str], tls: ssl.SSLContext | None = None) -> list[Target]:
    """Return the receivers that are named; ZeroMQ has no TLS. Raises `CommandError`."""
    found = []
    for target in targets:
        protocol, _, address = target.partition("=")
        client_of(protocol)
        found.append(Target(protocol, *parse_address(address), None if over_zeromq(protocol) else tls))
    return found


async def reached(kafka: KafkaSettings, seconds: float) -> None:
    """Wait for Kafka. Raises `DeliveryError` if it lacks the events topic, or cannot be reached for `seconds`.

    Where NetworkPolicies are enforced, a network lets a new pod through a moment after its start.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            await describe(kafka)
        except DeliveryError as error:
            if error.__cause__ is None or time.monotonic() > deadline:
                raise
        else:
            return
        await asyncio.sleep(AGAIN)


async def try_all(kafka: KafkaSettings, targets: Sequence[Target], seconds: float) -> int:
    """Return how many protocols have failed."""
    await reached(kafka, seconds)
    async with reading(kafka, NOW) as reader:
        runs: dict[bytes, str] = {}
        for target in targets:
            source = RateSource(1, 1, 0)
            tally = await run(target, source, patience=seconds)
            if tally.fine:
                runs[source.run.encode()] = target.protocol
                console.line(target.protocol, "good", f"{target.address} acknowledged in {tally.took * 1000:.0f} ms")
            else:
                console.line(target.protocol, "bad", next(iter(tally.problems)))
        found = await _find(reader, runs, seconds)
    for protocol in runs.values():
        where, topic = found.get(protocol), reader.topic
        text = f"on {topic}, {where}" if where else f"acknowledged, but not on {topic} after {seconds:.0f} s"
        console.line(protocol, "good" if where else "bad", text)
    return len(targets) - len(found)


async def _find(reader: TopicReader, runs: Mapping[bytes, str], seconds: float) -> dict[str, str]:
    """Read on until every event is found or the time is over; return where each is."""
    missing, found = dict(runs), dict[str, str]()
    deadline = time.monotonic() + seconds
    while missing and time.monotonic() < deadline:
        for record in await reader.step():
            for mark in [mark for mark in missing if record.value is not None and mark in record.value]:
                found[missing.pop(mark)] = f"partition {record.partition}, offset {record.offset}"
    return found
