"""The front door: all of Headrace that the author of a protocol has to import. What is not here may change without notice.

`docs/protocols` and the services in this repository show its use. A package whose layers have modules of their own may import
the names of `session` and `record` from there: these rooms know no socket, clock or Kafka, and this module knows all.
"""

from __future__ import annotations

from headrace_common.connection.messages import MessageConnection as MessageConnection
from headrace_common.connection.messages import MessageSocket as MessageSocket
from headrace_common.listening.endpoint import Endpoint as Endpoint
from headrace_common.operations.errors import ConfigError as ConfigError
from headrace_common.operations.errors import ProtocolError as ProtocolError
from headrace_common.operations.metrics import Catalogue as Catalogue
from headrace_common.operations.metrics import ReceiverMetrics as ReceiverMetrics
from headrace_common.operations.settings import LimitSettings as LimitSettings
from headrace_common.operations.settings import Section as Section
from headrace_common.operations.settings import ServiceSettings as ServiceSettings
from headrace_common.operations.variables import Bytes as Bytes
from headrace_common.operations.variables import Seconds as Seconds
from headrace_common.protocol import Port as Port
from headrace_common.protocol import Protocol as Protocol
from headrace_common.record.contract import OCTETS as OCTETS
from headrace_common.record.contract import Reason as Reason
from headrace_common.record.event import Envelope as Envelope
from headrace_common.record.event import Part as Part
from headrace_common.record.event import Reject as Reject
from headrace_common.record.event import deterministic_id as deterministic_id
from headrace_common.record.event import rfc3339_ms as rfc3339_ms
from headrace_common.record.event import source as source
from headrace_common.record.event import unique_id as unique_id
from headrace_common.service.parts import OwnParts as OwnParts
from headrace_common.service.parts import Parts as Parts
from headrace_common.service.parts import Runtime as Runtime
from headrace_common.service.service import stream_listeners as stream_listeners
from headrace_common.session.client import Answer as Answer
from headrace_common.session.client import Client as Client
from headrace_common.session.client import KeyedClient as KeyedClient
from headrace_common.session.client import OrderedClient as OrderedClient
from headrace_common.session.client import Remark as Remark
from headrace_common.session.inflate import inflate_zlib as inflate_zlib
from headrace_common.session.interface import Backend as Backend
from headrace_common.session.interface import ByteSession as ByteSession
from headrace_common.session.interface import Frame as Frame
from headrace_common.session.interface import Message as Message
from headrace_common.session.interface import MessageSession as MessageSession
from headrace_common.session.interface import Peer as Peer
from headrace_common.session.interface import Reply as Reply
from headrace_common.session.interface import Run as Run
from headrace_common.session.interface import Status as Status
from headrace_common.session.interface import Ticket as Ticket
from headrace_common.session.json_events import JsonEvents as JsonEvents
from headrace_common.session.json_events import JsonFrame as JsonFrame
from headrace_common.session.ledger import Ledger as Ledger
from headrace_common.session.memory import Memory as Memory
from headrace_common.session.parser import AtLeast as AtLeast
from headrace_common.session.parser import Cost as Cost
from headrace_common.session.parser import Parser as Parser
from headrace_common.session.parser import Steps as Steps
from headrace_common.session.parser import UpTo as UpTo
