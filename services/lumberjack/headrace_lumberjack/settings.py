"""Settings of the Lumberjack receiver."""

from __future__ import annotations

from headrace_common.operations.settings import KIB, MIB, Section, ServiceSettings
from headrace_common.operations.variables import Bytes
from pydantic import Field

PORT = 5044
"""The default port of Beats and Logstash."""


class LumberjackSection(Section):
    """Settings of Lumberjack alone. A client that exceeds a limit is disconnected."""

    window_events: int = Field(
        65_536,
        ge=1,
        le=1 << 20,
        description="Maximum events in a window; must not be below the clients' `bulk_max_size`.",
    )
    pairs: int = Field(1_024, ge=1, le=65_536, description="Maximum key-value pairs of one v1 event.")
    key_bytes: Bytes = Field(64 * KIB, ge=1, description="Maximum length of a key in a v1 event.")
    value_bytes: Bytes = Field(16 * MIB, ge=1, description="Maximum length of a value in a v1 event.")


class LumberjackSettings(ServiceSettings):
    """All settings of ``python -m headrace_lumberjack``."""

    lumberjack: LumberjackSection = LumberjackSection()
