"""The time of an entry."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal
from typing import Any, Final

from headrace_common.record.event import LAST_SECOND, rfc3339, rfc3339_ms

from headrace_forward.entries.values import Ext, event_time_text
from headrace_forward.wire import EventTime

SECOND: Final = 1_000_000_000  # ns
MILLISECOND: Final = 1_000_000  # ns
_NANOSECOND: Final = Decimal("1E-9")


RIGHT: Final = "is no time: ext type 0 (EventTime), an integer or a float is one"


class BadTimeError(ValueError):
    """A value that is not a valid time."""


def read_time(value: Any, received_ms: int) -> tuple[bytes, bool, bool]:
    """Returns (RFC 3339, whether it is a whole millisecond, whether the client sent it). Raises `BadTimeError`.

    Integers are Unix seconds, floats fractional ones; nil and 0 mean the receive time (fluentd, in_forward.rb).
    """
    try:
        if type(value) is Ext:
            if value.code != 0:
                raise BadTimeError(f"ext type {value.code} {RIGHT}")
            time = EventTime.decode(value.data)
            return event_time_text(time), time.nanoseconds % MILLISECOND == 0, True
        if value is None or (value == 0 and type(value) in (int, float, Decimal)):
            return rfc3339_ms(received_ms), True, False
        if type(value) is int:
            return rfc3339(value), True, True
        exact = Decimal(repr(value)) if type(value) is float and math.isfinite(value) else value
        if type(exact) is Decimal and -LAST_SECOND <= exact < LAST_SECOND + 1:
            return _fractional(exact)
    except BadTimeError:
        raise
    except ValueError as error:
        raise BadTimeError(f"{error}: {RIGHT}") from error
    raise BadTimeError(f"{type(value).__name__} {str(value)[:40]!r} {RIGHT}")


def _fractional(exact: Decimal) -> tuple[bytes, bool, bool]:
    """Returns fractional seconds with as many decimals as their text has (for a double, the shortest text), nine at most."""
    known = exact.quantize(_NANOSECOND, ROUND_FLOOR)  # before anything is computed, as that rounds to 28 digits
    seconds = math.floor(known)
    nanoseconds = int((known - seconds) * SECOND)
    digits = f"{nanoseconds:09d}".rstrip("0")
    if not digits:
        return rfc3339(seconds), True, True
    return rfc3339(seconds, int(digits), len(digits)), nanoseconds % MILLISECOND == 0, True
