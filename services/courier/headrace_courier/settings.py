"""Settings of the Courier receiver."""

from __future__ import annotations

from headrace_common.operations.settings import KIB, MIB, LimitSettings, ServiceSettings
from headrace_common.operations.variables import Bytes
from pydantic import Field

PORT = 5043
"""The protocol has no port of its own; log-courier's examples use this one."""


class CourierLimits(LimitSettings):
    """The limits, with the protocol's own defaults."""

    frame_bytes: Bytes = Field(
        10 * MIB,
        ge=KIB,
        description="Maximum announced size of a message, or of an EVNT's stream; log-courier has the same limit.",
    )


class CourierSettings(ServiceSettings):
    """All settings of the receiver."""

    limits: CourierLimits = CourierLimits()
