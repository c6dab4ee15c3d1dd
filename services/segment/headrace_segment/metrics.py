"""The metrics that only the segment service has."""

from __future__ import annotations

from headrace_common.operations.metrics import ReceiverMetrics


class SegmentMetrics:
    """Declares them in the receiver's catalogue."""

    def __init__(self, catalogue: ReceiverMetrics) -> None:
        """Its own limits, and why it alone ends connections, are counted from the start."""
        for limit in ("SEGMENTS", "WRITERS"):
            catalogue.limit_hits.labels(f"SEGMENT__{limit}")
        for why in ("log", "taken_over"):
            catalogue.connections_closed.labels(why)
        self.segments = catalogue.gauge(
            "segments", "Segments of the segment service, as this process has read the log."
        )
        self.writers = catalogue.gauge(
            "segment_writers",
            "Writers whose levels are known. Those without a connection leave after a week.",
        )
        self.bytes = catalogue.gauge("segment_stored_bytes", "Bytes of all segments that can be read.")
        self.blocks = catalogue.counter("segment_blocks", "Blocks that this process has stored.")
