"""The table of receivers that `up` starts. A new receiver is a new row here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ReceiverPort:
    """A port that clients connect to, and the setting (`section`, `setting`) that the receiver reads it from."""

    name: str
    port: int
    section: str = "listen"
    setting: str = "port"


@dataclass(frozen=True)
class ReceiverSpec:
    """A receiver, run by ``python -m module``. The first of `listeners` is the main one.

    `hint` shows a user how to send to it; ``{listen}`` is its address, ``{transport}`` tcp or tls. When the
    stack speaks TLS, `tls_hint` follows; ``{ca}`` is the file of the stack's own authority. `curve`: it speaks CURVE where
    others speak TLS; ``{keys}`` is the folder of the keys. `shares`: several processes can listen on its ports.
    """

    name: str
    module: str
    listeners: tuple[ReceiverPort, ...]
    ops_port: int
    hint: str
    tls_hint: str = ""
    curve: bool = False
    shares: bool = True


SERVICES: Final = (
    ReceiverSpec(
        "forward",
        "headrace_forward",
        (ReceiverPort("tcp", 24224),),
        8082,
        "fluent-bit -i cpu -o forward://{listen} -p Require_ack_response=true -p Retry_Limit=no_limits",
        " -p tls=on -p tls.ca_file={ca}",
    ),
    ReceiverSpec(
        "courier",
        "headrace_courier",
        (ReceiverPort("tcp", 5043),),
        8083,
        'log-courier: network: {{ transport: {transport}, servers: [ "{listen}" ] }}',
        ", and in it ssl ca: {ca}",
    ),
    ReceiverSpec(
        "lumberjack",
        "headrace_lumberjack",
        (ReceiverPort("tcp", 5044),),
        8081,
        "filebeat -E 'output.logstash.hosts=[\"{listen}\"]'",
        " -E 'output.logstash.ssl.certificate_authorities=[\"{ca}\"]'",
    ),
    ReceiverSpec(
        "logjam",
        "headrace_logjam",
        (ReceiverPort("listen", 9604), ReceiverPort("pull", 9605, "logjam", "pull_port")),
        8084,
        'logjam_agent: LogjamAgent.add_forwarder(:zmq, host: "{listen}")',
        "; but only clients that speak CURVE, with the keys {keys}/curve.pub and curve-client.*",
        curve=True,
        shares=False,
    ),
    ReceiverSpec(
        "segment",
        "headrace_segment",
        (ReceiverPort("tcp", 12345),),
        8085,
        "a client of the Streaming Service protocol, or Pravega's Java client with a segment store at {listen}",
        ", over TLS with {ca}",
    ),
)

KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
LAKE_OPS_PORT: Final = 8086
LIVE_PORT: Final = 8080
LAKE_MODULE: Final = "headrace_lake"
EVENTS_PARTITIONS: Final = 4
SEGMENTS_PARTITIONS: Final = 4
"""Partitions of these topics on a laptop. The defaults for clusters are in `headrace_common.operations.settings`."""
