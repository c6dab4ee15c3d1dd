"""Chance of a seed, and what is sent."""

from __future__ import annotations

import random

Sent = list[list[bytes]]
"""Messages of parts: one each, Logjam's their frames. To protocols of bytes they are one stream."""


class Chance(random.Random):
    """The same choices for the same seed."""

    def perhaps(self, probability: float) -> bool:
        return self.random() < probability


def flat(sent: Sent) -> bytes:
    """As one stream."""
    return b"".join(part for message in sent for part in message)
