"""How an item of quarantine becomes messages again. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_common.operations.settings import ServiceSettings
from headrace_common.record.contract import Reason
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_again
from headrace_common.session.memory import Memory

from headrace_syslog.events import LENGTH, MessageMaker


def read(item: QuarantinedItem, settings: ServiceSettings) -> ReplayOutcome:
    """Reads a message, of RELP or not, or (`internal`) several, each behind its length."""
    maker, peer = MessageMaker(item.protocol, settings.limits, Memory()), peer_of(item)
    raws = _split(item.content) if item.reason == Reason.INTERNAL else [item.content]
    return read_again(item, (maker.part(raw, peer, item.received_ms) for raw in raws))


def _split(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(content, at)[0]
        yield content[begin:at]
