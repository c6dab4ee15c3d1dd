"""What `up` starts, declared once: a new receiver is one more row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Listener:
    """A port that clients connect to, and the setting that names it."""

    name: str
    port: int
    section: str = "listen"
    setting: str = "port"


@dataclass(frozen=True)
class Service:
    """A receiver: ``python -m module``; `listeners` begins with the main one; `hint` is shown as how to use it.

    `tls_hint` is what follows it when the stack speaks TLS; ``{ca}`` in it is the file of the stack's own authority.
    """

    name: str
    module: str
    listeners: tuple[Listener, ...]
    ops_port: int
    hint: str
    tls_hint: str = ""


SERVICES: Final = (
    Service(
        "forward",
        "headrace_forward",
        (Listener("tcp", 24224),),
        8082,
        "fluent-bit -i cpu -o forward://{listen} -p Require_ack_response=true",
        " -p tls=on -p tls.ca_file={ca}",
    ),
    Service(
        "courier",
        "headrace_courier",
        (Listener("tcp", 5043),),
        8083,
        'log-courier: network: {{ transport: tcp, servers: [ "{listen}" ] }}',
        ", with transport: tls and ssl ca: {ca}",
    ),
    Service(
        "lumberjack",
        "headrace_lumberjack",
        (Listener("tcp", 5044),),
        8081,
        "filebeat -E 'output.logstash.hosts=[\"{listen}\"]'",
        " -E 'output.logstash.ssl.certificate_authorities=[\"{ca}\"]'",
    ),
)

KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
LAKE_OPS_PORT: Final = 8086
LAKE_MODULE: Final = "headrace_lake"
EVENTS_PARTITIONS: Final = 4
"""Of the events topic on a laptop; a cluster's default is in `headrace_common.settings`."""
