"""How an item of quarantine becomes a request again. Pure."""

from __future__ import annotations

from headrace_common.operations.settings import ServiceSettings
from headrace_common.record.contract import Attribute
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_by

from headrace_otlp.events import OtlpAttribute
from headrace_otlp.session import OtlpSession
from headrace_otlp.wire import request


def read(item: QuarantinedItem, settings: ServiceSettings) -> ReplayOutcome:
    """Reads a body again: one log record with its resource and scope, or all of a request."""
    about = item.attributes
    data = request(item.content, about[OtlpAttribute.ENCODING.value], about.get(OtlpAttribute.COMPRESSION.value, ""))
    return read_by(OtlpSession(peer_of(item), settings.limits), item, data, numbered=Attribute.INDEX.value in about)
