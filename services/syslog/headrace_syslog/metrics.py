"""The metric that only the receiver of syslog has."""

from __future__ import annotations

from headrace_common.operations.metrics import Catalogue


class SyslogMetrics:
    """Declares it in the receiver's catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.dropped = catalogue.counter(
            "syslog_datagrams_dropped",
            "Datagrams that the kernel dropped because they were not read in time, as the next datagram tells. They are lost.",
        )
