"""Settings of the segment service."""

from __future__ import annotations

from typing import ClassVar, Final

from headrace_common.operations.settings import KIB, MIB, Section, ServiceSettings
from headrace_common.operations.variables import Seconds
from pydantic import Field

PORT: Final = 12345
"""The port of Pravega's segment stores."""


class SegmentSection(Section):
    """Settings of the segment service alone."""

    name_bytes: ClassVar[int] = KIB
    """Maximum size of a segment's name in UTF-8: it is in every record of the log."""

    reply_bytes: ClassVar[int] = 2 * MIB
    """Maximum data in the answer to one read: clients ask again for the rest."""

    replies_bytes: ClassVar[int] = 64 * MIB
    """Memory for replies to reads that have not left. Beyond it each has at most 16 KiB; a connection has one at a time."""

    connection_writers: ClassVar[int] = 10_000
    """Maximum writers that one connection sets up."""

    cache_bytes: ClassVar[int] = 64 * MIB
    """Memory for the newest blocks, from which readers at the end are answered."""

    checkpoint_records: ClassVar[int] = 100_000
    """Records after which the state is stored in the log: a start reads hardly more, in a few seconds."""

    tail_wait: ClassVar[float] = 5
    """Seconds that a read at a segment's end waits for more before it is answered with nothing: clients ask again at once."""

    writer_retention: ClassVar[float] = 7 * 86_400
    """Seconds without a block after which a writer without a connection is forgotten: clients give up after hours."""

    segments: int = Field(100_000, ge=1, description="Maximum segments; beyond them none is created.")
    writers: int = Field(
        100_000, ge=1, description="Maximum writers of one segment whose levels are known; beyond them none is set up."
    )
    retention_time: Seconds = Field(
        0,
        ge=0,
        description="Of each segment, what was appended within this time is kept, and up to an hour more; 0: all.",
    )


class SegmentSettings(ServiceSettings):
    """All settings of the receiver."""

    segment: SegmentSection = SegmentSection()
