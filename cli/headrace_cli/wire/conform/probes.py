"""All probes, in the order in which they are asked."""

from __future__ import annotations

from typing import Final

from headrace_cli.wire.conform import harmful, sound, stalled
from headrace_cli.wire.conform.bench import Probe

_LUMBERJACK: Final = frozenset({"lumberjack"})
_FORWARD: Final = frozenset({"forward"})
_COUNTED: Final = frozenset({"lumberjack", "courier"})

PROBES: Final = (
    Probe(
        "acknowledges", "How soon does it acknowledge?",
        "a frame of 100 events, and another when the first is acknowledged",
        "broken if one is not acknowledged", sound.acknowledges,
    ),
    Probe(
        "before-storage", "Does it acknowledge before it stores?",
        "a frame while the storage stands still, which then goes on",
        "broken if any event is acknowledged meanwhile, or nothing afterwards", stalled.before_storage, held=True,
    ),
    Probe(
        "version-1", "Does it keep clients of version 1 alive?",
        "the same in version 1, whose clients take any reply as success for the whole window",
        "broken if it says anything meanwhile", stalled.version_one, _LUMBERJACK, held=True,
    ),
    Probe(
        "half-closed", "Does a client that has finished sending still hear?",
        "a frame and the end of the client's side, while the storage stands still",
        "broken if it is acknowledged meanwhile; noted if the connection is closed", stalled.half_closed, held=True,
    ),
    Probe(
        "gone", "What if the client goes away with a frame in flight?",
        "a frame, and a reset while the storage stands still", "broken if a new client is not served afterwards",
        stalled.gone, held=True, risky=True,
    ),
    Probe(
        "forms", "Which forms of a frame does it take?", "three events in each form, each over a connection of its own",
        "noted if one is not acknowledged", sound.forms,
    ),
    Probe(
        "partial", "Does it say how far it is?", "a frame of 10,000 events",
        "broken if it takes back what it has acknowledged", sound.partial, _COUNTED,
    ),
    Probe(
        "in-flight", "Does it take several frames at once?", f"{sound.IN_FLIGHT} frames in one piece",
        "broken if one is never acknowledged though the connection stays open", sound.in_flight,
    ),
    Probe(
        "resend", "Does it acknowledge what it has already?", "the same bytes over two connections",
        "broken if the second are not acknowledged: the client would send them for ever", sound.resend,
    ),
    Probe(
        "half-close", "Does it answer a client that has finished sending?", "a frame and the end of the client's side",
        "noted if it is not acknowledged", sound.half_close,
    ),
    Probe(
        "empty-frame", "What does it say to a frame without events?", "an empty frame, and one with three events",
        "noted if either is not acknowledged", sound.empty_frame,
    ),
    Probe(
        "no-chunk", "What does it do without a chunk?", "a message that asks for no acknowledgement, and one that does",
        "broken if the second is not acknowledged though the connection stays open", sound.no_chunk, _FORWARD,
    ),
    Probe(
        "large-frame", "How large may a frame be?",
        "frames of events of 1 KiB, from 64 KiB on, each four times as large, up to --largest",
        "noted where it stops", sound.large_frame, risky=True,
    ),
    Probe(
        "large-event", "How large may an event be?", "the same with a single event", "noted where it stops",
        sound.large_event, risky=True,
    ),
    Probe(
        "late-byte", "Does it wait for a frame's end?", "a frame without its last byte, and that byte after a pause",
        "broken if it acknowledges before the last byte, or not afterwards", harmful.late_byte,
    ),
    Probe(
        "half-frame", "What does half a frame do?", "a frame, half of another, and the end of the client's side",
        "broken if the half is acknowledged; noted if the frame before it is not", harmful.half_frame, risky=True,
    ),
    Probe(
        "malformed", "What do bytes do with which no frame begins?", "a frame, such bytes, and another frame",
        "broken if it says what no server may say; noted if it goes on, or does not acknowledge the frame before them",
        harmful.malformed, risky=True,
    ),
    Probe(
        "unknown", "What does a message do that nobody knows?",
        "a frame, a message of an unknown kind or version, and another frame", "as malformed", harmful.unknown, risky=True,
    ),
    Probe(
        "bad-event", "What does one event do that is not understood?",
        "a sound frame with one such event among ten others",
        "noted: who closes gets it again for ever, who acknowledges must keep it somewhere", harmful.faulty, risky=True,
    ),
    Probe(
        "overfull", "What do more events do than a window announces?", "a window of five events with ten in it",
        "noted if it acknowledges the five", harmful.overfull, _LUMBERJACK, risky=True,
    ),
    Probe(
        "bomb", "What does a compressed frame do that inflates a thousandfold?",
        "one that inflates to --inflated bytes", "broken if a new client is not served afterwards", harmful.bomb, risky=True,
    ),
    Probe(
        "no-frame", "What do connections do that say nothing?", "three that close at once",
        "broken if a new client is not served afterwards", harmful.no_frame, risky=True,
    ),
)  # fmt: skip
"""Each is asked of servers of its `protocols`."""
