"""Settings of the Courier receiver."""

from __future__ import annotations

from headrace_common.settings import KIB, MIB, LimitSettings, Section, ServiceSettings
from pydantic import Field

PORT = 5043
"""The protocol has none of its own; this is the one that log-courier's examples use."""


class CourierLimits(LimitSettings):
    """The limits, with the protocol's own defaults."""

    frame_bytes: int = Field(
        10 * MIB,
        ge=KIB,
        description="One message as its length announces it, or the stream of an EVNT; log-courier takes no more either.",
    )
    idle_time: float = Field(
        1_900,
        ge=0,
        description="Close a connection that was silent so long; 0: never. The slowest client pings every 1,800 s.",
    )


class CourierSection(Section):
    """What only Courier has."""

    subject_bytes: int = Field(
        KIB, ge=1, le=64 * KIB, description="Longest `type` or `path` that names the stream; a longer one does not."
    )


class CourierSettings(ServiceSettings):
    """Everything that configures ``python -m headrace_courier``."""

    limits: CourierLimits = CourierLimits()
    courier: CourierSection = CourierSection()
