"""How an item of quarantine becomes messages again. Pure."""

from __future__ import annotations

from headrace_common.operations.settings import ServiceSettings
from headrace_common.record.contract import Reason
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_again

from headrace_syslog.events import MessageMaker
from headrace_syslog.wire.relp import RelpDecoder


def read(item: QuarantinedItem, settings: ServiceSettings) -> ReplayOutcome:
    """Reads a message, of RELP or not, or (`internal`) several, as frames of RELP."""
    maker, peer, raws = MessageMaker(item.protocol, settings.limits, None), peer_of(item), [item.content]
    if item.reason == Reason.INTERNAL:
        raws = [frame.data for frame in RelpDecoder(len(item.content)).receive_all(item.content)]
    return read_again(item, (maker.part(raw, peer, item.received_ms) for raw in raws))
