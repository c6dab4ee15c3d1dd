"""How an item of quarantine becomes a window again. Pure."""

from __future__ import annotations

from headrace_common.operations.settings import ServiceSettings
from headrace_common.record.contract import Attribute
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_by

from headrace_lumberjack import wire as lumberjack
from headrace_lumberjack.session import LumberjackSession


def read(item: QuarantinedItem, settings: ServiceSettings) -> ReplayOutcome:
    """Reads an item: a document, or a D frame as it came; with reason `internal` all frames of a run."""
    content = item.content
    if content[:2] in (b"1D", b"1J", b"2J"):
        version, frames = content[0], content
    else:
        version = lumberjack.V2
        frames = lumberjack.json_frame(item.attributes.get(Attribute.SEQUENCE.value, 1), content)
    session = LumberjackSession(peer_of(item), settings.limits)
    return read_by(session, item, lumberjack.window(session.window_events, version) + frames)
