"""Settings of the Lumberjack receiver."""

from __future__ import annotations

from typing import ClassVar

from headrace_common.operations.settings import KIB, MIB, Section, ServiceSettings

PORT = 5044
"""The default port of Beats and Logstash."""


class LumberjackSection(Section):
    """Settings of Lumberjack alone. A client that exceeds a limit is disconnected."""

    window_events: ClassVar[int] = 65_536
    """Maximum events in a window: Beats send up to `bulk_max_size`, which is 2,048 by default."""

    pairs: ClassVar[int] = 1_024
    """Maximum pairs of one v1 event: logstash-forwarder sends four, and those of its configuration."""

    key_bytes: ClassVar[int] = 64 * KIB
    """Maximum length of a key in a v1 event."""

    value_bytes: ClassVar[int] = 16 * MIB
    """Maximum length of a value in a v1 event. Users set LIMITS__EVENT_BYTES: larger events go to quarantine."""


class LumberjackSettings(ServiceSettings):
    """All settings of ``python -m headrace_lumberjack``."""

    lumberjack: LumberjackSection = LumberjackSection()
