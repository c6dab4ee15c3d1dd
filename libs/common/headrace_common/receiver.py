"""The front door: all of Headrace that the author of a protocol has to import. What is not here may change without notice.

`docs/protocols` and the services in this repository show its use. A package whose layers have modules of their own may import
the names of `session` and `record` from there: these rooms know no socket, clock or Kafka, and this module knows all.
"""

from __future__ import annotations

from headrace_common.connection.backend import Backend, Caller
from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.errors import ConfigError, DeliveryError, HeadraceError, ProtocolError
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import Catalogue, ReceiverMetrics
from headrace_common.operations.settings import KIB, MIB, LimitSettings, Section, ServiceSettings
from headrace_common.operations.variables import Bytes, Seconds
from headrace_common.protocol import Port, Protocol, run
from headrace_common.record.contract import JSON, OCTETS, Reason
from headrace_common.record.event import (
    Envelope,
    Event,
    FieldHash,
    Part,
    Reject,
    deterministic_frame_ids,
    deterministic_id,
    rfc3339,
    rfc3339_ms,
    source,
    unique_frame_ids,
    unique_id,
)
from headrace_common.record.json_object import Fault, JsonObject
from headrace_common.service.parts import OwnParts, Parts, Runtime
from headrace_common.service.service import stream_listeners
from headrace_common.session.client import Answer, Client, Compression, KeyedClient, OrderedClient, Remark
from headrace_common.session.inflate import InflateLimits, inflate_gzip, inflate_stream, inflate_zlib
from headrace_common.session.interface import (
    PAUSE,
    ByteSession,
    Frame,
    Message,
    MessageSession,
    Pause,
    Peer,
    Question,
    Reply,
    Session,
    Status,
    Ticket,
    paused,
)
from headrace_common.session.ledger import Ledger, LedgerEntry
from headrace_common.session.memory import Memory

__all__ = [
    "JSON",
    "KIB",
    "MIB",
    "OCTETS",
    "PAUSE",
    "Answer",
    "Backend",
    "ByteSession",
    "Bytes",
    "Caller",
    "Catalogue",
    "Client",
    "Compression",
    "ConfigError",
    "DeliveryError",
    "Endpoint",
    "Envelope",
    "Event",
    "Fault",
    "FieldHash",
    "Frame",
    "HeadraceError",
    "InflateLimits",
    "JsonObject",
    "KeyedClient",
    "Ledger",
    "LedgerEntry",
    "LimitSettings",
    "Log",
    "Memory",
    "Message",
    "MessageConnection",
    "MessageSession",
    "MessageSocket",
    "OrderedClient",
    "OwnParts",
    "Part",
    "Parts",
    "Pause",
    "Peer",
    "Port",
    "Protocol",
    "ProtocolError",
    "Question",
    "Reason",
    "ReceiverMetrics",
    "Reject",
    "Remark",
    "Reply",
    "Runtime",
    "Seconds",
    "Section",
    "ServiceSettings",
    "Session",
    "Status",
    "Ticket",
    "deterministic_frame_ids",
    "deterministic_id",
    "inflate_gzip",
    "inflate_stream",
    "inflate_zlib",
    "paused",
    "rfc3339",
    "rfc3339_ms",
    "run",
    "source",
    "stream_listeners",
    "unique_frame_ids",
    "unique_id",
]
