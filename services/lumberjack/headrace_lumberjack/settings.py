"""Settings of the Lumberjack receiver."""

from __future__ import annotations

from typing import ClassVar

from headrace_common.operations.settings import Section, ServiceSettings

PORT = 5044
"""The default port of Beats and Logstash."""


class LumberjackSection(Section):
    """Settings of Lumberjack alone. A client that exceeds a limit is disconnected."""

    window_events: ClassVar[int] = 65_536
    """Maximum events in a window: Beats send up to `bulk_max_size`, which is 2,048 by default."""

    pairs: ClassVar[int] = 1_024
    """Maximum pairs of one v1 event: logstash-forwarder sends four, and those of its configuration."""


class LumberjackSettings(ServiceSettings):
    """All settings of the receiver."""

    lumberjack: LumberjackSection = LumberjackSection()
