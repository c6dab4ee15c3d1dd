"""Measures what the Courier receiver costs beside Forward's, in one run: CPU per event, memory, acknowledgement latency.

The same records in every shape, with the fields beside that log-courier adds.
"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

import orjson
from headrace_courier.replies import Acknowledged, CourierReplies
from headrace_courier.wire import NONCE_BYTES, evnt, jdat

from . import beside, load
from .beside import Shape, arguments
from .forward import FRAMES, frames

__all__ = ["arguments", "run"]

AIM = 3
"""CPU-seconds for a million events in JDATs of 500."""


def courier(number: int, at: Any, record: dict[str, Any]) -> bytes:
    """The record as log-courier's."""
    return orjson.dumps(
        {
            "@timestamp": f"2026-11-21T09:30:37.{at.nanoseconds:09d}Z",
            "host": "vm",
            "path": "/var/log/app.log",
            "offset": number * 300,
            "message": record["log"],
            **{name: value for name, value in record.items() if name != "log"},
        }
    )


class PayloadTalker:
    """One payload after the other, each with a nonce of its own. See `load.Talker`."""

    def __init__(self, number: int, payloads: list[bytes], events: int) -> None:
        self._payloads = payloads
        self._turn = number
        self._events = events
        self._replies = CourierReplies()
        self._nonce = b""

    def frame(self) -> bytes:
        """See `load.Talker`. Nonces begin behind type and length."""
        self._turn += 1
        payload = self._payloads[self._turn % len(self._payloads)]
        self._nonce = os.urandom(NONCE_BYTES)
        return payload[:8] + self._nonce + payload[8 + NONCE_BYTES :]

    def acknowledged(self, data: bytes) -> bool:
        """See `load.Talker`. Less than the whole is progress, or a sign of life."""
        for reply in self._replies.receive(data):
            if not isinstance(reply, Acknowledged) or reply.nonce != self._nonce or reply.count > self._events:
                raise SystemExit(f"said {reply} to {self._events} events of {self._nonce.hex()}")
            if reply.count == self._events:
                return True
        return False


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs all phases."""
    made = frames(500)
    records = [entry for entries, _ in made for entry in entries]
    events = [courier(number, *entry) for number, entry in enumerate(records)]

    def shape(name: str, size: int, encode: Any, count: int = FRAMES) -> Shape:
        total = min(count, len(events) // size)
        payloads = [encode(bytes(NONCE_BYTES), events[n * size : (n + 1) * size]) for n in range(total)]
        return Shape(name, size, payloads, lambda n: PayloadTalker(n, payloads, size))

    shapes = [
        shape("JDAT, 500", 500, jdat),
        shape("EVNT, 500", 500, evnt),
        shape("JDAT, 1", 1, jdat, 4096),
        shape("EVNT, 1", 1, evnt, 4096),
    ]
    result = beside.measure("headrace_courier", made, shapes, arguments)
    result["value_bytes_per_event"] = size = {
        "forward": statistics.mean(len(orjson.dumps(record)) for _, record in records[:5000]),
        "courier": statistics.mean(map(len, events[:5000])),
    }
    compared = (
        f"Aim: {AIM} CPU-s for JDAT of 500. Against Forward of 500: {result['ratios_to_forward'][0]:.2f} ×, with values of "
        f"{size['courier']:.0f} against {size['forward']:.0f} bytes."
    )
    return "courier", result, beside.described("Courier", "payload", result, compared)
