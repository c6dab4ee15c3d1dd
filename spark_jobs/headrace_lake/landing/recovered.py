"""The rows that an earlier run wrote for a batch, as found in a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = "unix_micros(min(landed_at))"
"""SQL of an aggregate: the earliest `landed_at`, for `moment`."""


def moment(micros: int) -> datetime:
    """Returns the time `micros` microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)
