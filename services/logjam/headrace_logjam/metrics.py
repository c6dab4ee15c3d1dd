"""The metrics that only Logjam's receiver has."""

from __future__ import annotations

from headrace_common.operations.metrics import Catalogue


class LogjamMetrics:
    """Declares them in the receiver's catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.lost_messages = catalogue.counter(
            "logjam_lost_messages",
            "Numbers of Logjam devices that this process did not hear though it heard later ones, or that Kafka refused. If it "
            "rises, we, or Kafka, are too slow. check-loss has what all processes lost.",
            ("endpoint",),
        )
        self.clients = catalogue.gauge(
            "logjam_clients", "Clients connected to Logjam's sockets, against LIMITS__CONNECTIONS."
        )
