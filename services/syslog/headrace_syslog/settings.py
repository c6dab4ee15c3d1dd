"""Ports of the receivers of syslog. They have no settings of their own."""

from __future__ import annotations

from typing import Final

RELP_PORT: Final = 2514
"""The port of rsyslog's examples."""

SYSLOG_PORT: Final = 5514
"""For TCP and UDP: syslog's own, 514, is one that only root may open."""
