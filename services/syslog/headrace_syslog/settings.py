"""Settings of the receivers of syslog."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from headrace_common.operations.settings import Section, ServiceSettings
from pydantic import Field

RELP_PORT: Final = 2514
"""The port of rsyslog's examples."""

SYSLOG_PORT: Final = 5514
"""For TCP and UDP: syslog's own, 514, is one that only root may open."""


class SyslogSection(Section):
    """Settings of syslog alone."""

    parameters: ClassVar[int] = 1_000
    """Maximum parameters and elements of structured data that are read. A message with more goes on as text."""

    @property
    def reading(self) -> dict[str, Any]:
        """How `events.MessageMaker` reads messages."""
        return {"parameters": self.parameters, "local_is_utc": self.local_is_utc}

    local_is_utc: bool = Field(
        False,
        description="Times without a zone are UTC. Else an event has the time of its receipt, and its own time as sent.",
    )


class RelpSettings(ServiceSettings):
    """All settings of ``python -m headrace_syslog.relp``."""

    relp: SyslogSection = SyslogSection()


class SyslogSettings(ServiceSettings):
    """All settings of ``python -m headrace_syslog.syslog``."""

    syslog: SyslogSection = SyslogSection()
