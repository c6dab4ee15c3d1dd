"""Settings of the Lumberjack receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace_common.operations.settings import KIB, MIB, Section, ServiceSettings
from pydantic import Field

PORT = 5044
"""The default port of Beats and Logstash."""


class LumberjackSection(Section):
    """Settings of Lumberjack alone. A client that exceeds a limit is disconnected."""

    removed: ClassVar[Mapping[str, str]] = {
        "pairs": "a v1 event has at most 1,024 pairs",
        "key_bytes": "a key of a v1 event has at most 64 KiB",
        "value_bytes": "a value of a v1 event has at most 16 MiB; LIMITS__EVENT_BYTES bounds the event",
    }

    window_events: int = Field(
        65_536,
        ge=1,
        le=1 << 20,
        description="Maximum events in a window; must not be below the clients' `bulk_max_size`.",
    )

    pairs: ClassVar[int] = 1_024
    """Maximum pairs of one v1 event: logstash-forwarder sends four, and those of its configuration."""

    key_bytes: ClassVar[int] = 64 * KIB
    """Maximum length of a key in a v1 event."""

    value_bytes: ClassVar[int] = 16 * MIB
    """Maximum length of a value in a v1 event. LIMITS__EVENT_BYTES is what may be set: what is above it goes to quarantine."""


class LumberjackSettings(ServiceSettings):
    """All settings of ``python -m headrace_lumberjack``."""

    lumberjack: LumberjackSection = LumberjackSection()
