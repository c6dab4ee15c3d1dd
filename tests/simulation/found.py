"""Seeds that once failed, with what they found: they run for ever, in every tier."""

from __future__ import annotations

from typing import Final

FOUND: Final[tuple[tuple[str, int, str], ...]] = ()
"""Protocol, seed, and the fault that it found."""
