"""The settings of the landing job."""

from typing import Final

ACCEPT: Final = "--accept-loss"
"""The option with which the landing job goes on after what Kafka deleted."""
