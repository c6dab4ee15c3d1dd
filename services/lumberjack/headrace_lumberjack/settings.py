"""Settings of the Lumberjack receiver."""

from __future__ import annotations

from headrace_common.settings import KIB, MIB, Section, ServiceSettings
from pydantic import Field

PORT = 5044
"""The port that Beats and Logstash use."""


class LumberjackSection(Section):
    """What only Lumberjack has. Whoever exceeds one of these is disconnected."""

    window_events: int = Field(
        65_536, ge=1, le=1 << 20, description="Largest window; must not be below the clients' `bulk_max_size`."
    )
    pairs: int = Field(1_024, ge=1, le=65_536, description="Key-value pairs of one v1 event.")
    key_bytes: int = Field(64 * KIB, ge=1, description="Longest key of a v1 event.")
    value_bytes: int = Field(16 * MIB, ge=1, description="Longest value of a v1 event.")


class LumberjackSettings(ServiceSettings):
    """Everything that configures ``python -m headrace_lumberjack``."""

    lumberjack: LumberjackSection = LumberjackSection()
