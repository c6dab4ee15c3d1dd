"""How an item of quarantine becomes messages again. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Reason
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_again
from headrace_common.session.memory import Memory

from headrace_syslog.events import LENGTH, MessageMaker
from headrace_syslog.settings import RelpSettings, SyslogSection, SyslogSettings


def read_relp(item: QuarantinedItem, settings: RelpSettings) -> ReplayOutcome:
    """Reads a message, or (`internal`) several, each behind its length."""
    return _read(item, settings.limits, settings.relp)


def read_syslog(item: QuarantinedItem, settings: SyslogSettings) -> ReplayOutcome:
    """The same of a message without RELP."""
    return _read(item, settings.limits, settings.syslog)


def _read(item: QuarantinedItem, limits: LimitSettings, section: SyslogSection) -> ReplayOutcome:
    maker, peer = MessageMaker(item.protocol, limits, Memory(), **section.reading), peer_of(item)
    raws = _split(item.content) if item.reason == Reason.INTERNAL else [item.content]
    return read_again(item, (maker.part(raw, peer, item.received_ms) for raw in raws))


def _split(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(content, at)[0]
        yield content[begin:at]
