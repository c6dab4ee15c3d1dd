"""Publishes the messages of producers, as a device does, once Kafka has stored them. Pure.

This process can replace a device for a consumer: it has a device number of its own, and numbers all that it publishes, heartbeats
too, from 1 at each start. All frames but meta are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace_logjam.wire import HEARTBEAT, NONE, Meta, decode_meta, encode_meta

BEAT: Final = 5.0
"""Seconds between two heartbeats, as devices send them."""


class Publication:
    """Numbers the messages that are published."""

    def __init__(self, device: int, address: bytes) -> None:
        """`device`: our number. `address`: where we publish, for heartbeats."""
        self._device = device
        self._address = address
        self._sequence = 0

    def message(self, frames: Sequence[bytes], received_ms: int) -> list[bytes]:
        """Returns a producer's four frames, of which the meta is sound, that came at `received_ms` (Unix time)."""
        meta = decode_meta(frames[3])
        return [*frames[:3], self._meta(meta.compression, meta.created_ms or received_ms)]

    def heartbeat(self, now_ms: int) -> list[bytes]:
        """Returns a heartbeat. It takes a number."""
        return [HEARTBEAT, self._address, b"{}", self._meta(NONE, now_ms)]

    def _meta(self, compression: int, created_ms: int) -> bytes:
        self._sequence += 1
        return encode_meta(Meta(compression, self._device, created_ms, self._sequence))
