"""Seeds that once failed, with what they found: they run for ever, in every tier."""

from __future__ import annotations

from typing import Final

FOUND: Final[tuple[tuple[str, int, str], ...]] = (
    (
        "segment",
        153,
        "a service that closed its producer was asked for it again and again by its own pump, and never ended",
    ),
)
"""Protocol, seed, and the fault that it found."""
