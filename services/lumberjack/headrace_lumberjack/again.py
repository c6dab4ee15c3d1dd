"""How an item of quarantine becomes a window again. Pure."""

from __future__ import annotations

from headrace_common.record.contract import Attribute
from headrace_common.session.again import (
    ImpossibleError,
    QuarantinedItem,
    ReplayOutcome,
    frames_of,
    own_ids,
    parts_of,
    peer_of,
    read_again,
)

from headrace_lumberjack import wire as lumberjack
from headrace_lumberjack.session import LumberjackSession, wire_limits
from headrace_lumberjack.settings import LumberjackSettings


def read(item: QuarantinedItem, settings: LumberjackSettings) -> ReplayOutcome:
    """Reads an item: a document, or a D frame as it came; with reason `internal` all frames of a run."""
    content = item.content
    if content[:2] in (b"1D", b"2J"):
        version, frames = content[0], content
        count = _count_frames(content, settings)
    else:
        version, count = lumberjack.V2, 1
        frames = lumberjack.json_frame(item.attributes.get(Attribute.SEQUENCE.value, 1), content)
    session = LumberjackSession(peer_of(item), settings.limits, settings.lumberjack)
    made = frames_of(session, lumberjack.window(count, version) + frames, item.received_ms)
    return read_again(parts_of(made), own_ids(item))


def _count_frames(content: bytes, settings: LumberjackSettings) -> int:
    cutter = lumberjack.Cutter(wire_limits(settings.limits, settings.lumberjack))
    cutter.feed(content)
    count = 0
    while (run := cutter.cut()) is not None:
        if not isinstance(run, lumberjack.FrameRun):
            raise ImpossibleError("it is no run of data frames")
        count += len(run)
    if cutter.left:
        raise ImpossibleError("it ends inside a frame")
    return count
