"""The metrics that only Logjam's receiver has."""

from __future__ import annotations

from enum import StrEnum

from headrace_common.operations.metrics import Catalogue


class ClientRefusal(StrEnum):
    """Why a client may not connect. A closed list: it is a metric label."""

    ACCESS = "access"  # LOGJAM__ALLOW, or LOGJAM__CURVE_CLIENTS
    HANDSHAKE = "handshake"  # not ZeroMQ's, another mechanism, or later than LIMITS__HANDSHAKE_TIME
    CONNECTIONS = "connections"  # LIMITS__CONNECTIONS are there


class LogjamMetrics:
    """Declares them in the receiver's catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.answers = catalogue.counter(
            "logjam_answers",
            "Answers to Logjam's producers, by answer. late: Kafka took longer than LOGJAM__ANSWER_TIME, nothing was said.",
            ("answer",),
            ("accepted", "refused", "ping", "late"),
        )
        self.lost_messages = catalogue.counter(
            "logjam_lost_messages",
            "Numbers that a Logjam device gave out and this consumer did not store: each is in a marker. Rising: a device drops, "
            "because we, or Kafka, are too slow.",
            ("endpoint",),
        )
        self.notices = catalogue.counter(
            "logjam_notices",
            "What a Logjam device's numbers told beside gaps. joined: it had published before us, which is no loss. doubled: "
            "two devices use one number, so more is called lost than is; give each a number of its own.",
            ("notice", "endpoint"),
        )
        self.clients = catalogue.gauge(
            "logjam_clients", "Clients connected to Logjam's sockets, against LIMITS__CONNECTIONS."
        )
        self.refused = catalogue.counter(
            "logjam_refused",
            "Clients that Logjam's sockets refused, by reason: access (LOGJAM__ALLOW or LOGJAM__CURVE_CLIENTS), handshake (it "
            "does not speak ZeroMQ, or not CURVE where there are keys, or is too slow), connections (LIMITS__CONNECTIONS).",
            ("why",),
            tuple(ClientRefusal),
        )
