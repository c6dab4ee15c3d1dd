"""The metrics that only Logjam's receiver has."""

from __future__ import annotations

from headrace_common.operations.metrics import Catalogue


class LogjamMetrics:
    """Declares them in the receiver's catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.answers = catalogue.counter(
            "logjam_answers",
            "Answers to Logjam's producers, by answer.",
            ("answer",),
            ("accepted", "refused", "ping"),
        )
        self.lost_messages = catalogue.counter(
            "logjam_lost_messages",
            "Numbers of Logjam devices that this process did not hear though it heard later ones, or that Kafka refused. Rising: "
            "a device drops, because we, or Kafka, are too slow. check-loss has what all processes lost.",
            ("endpoint",),
        )
        self.clients = catalogue.gauge(
            "logjam_clients", "Clients connected to Logjam's sockets, against LIMITS__CONNECTIONS."
        )
        self.refused = catalogue.counter(
            "logjam_refused",
            "Clients that Logjam's sockets refused: LOGJAM__ALLOW or LOGJAM__CURVE_CLIENTS does not name them, or they do not "
            "speak ZeroMQ, or not CURVE where there are keys.",
        )
