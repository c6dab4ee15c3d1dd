"""Settings of the segment service."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Self

from headrace_common.operations.settings import KIB, MIB, LimitSettings, Section, ServiceSettings
from headrace_common.operations.variables import Bytes, Seconds
from pydantic import Field, SecretStr, model_validator

from headrace_segment.session.limits import SessionLimits
from headrace_segment.session.rights import Right

PORT: Final = 12345
"""The port of Pravega's segment stores."""

FRAME_BYTES: Final = 16 * MIB - 1
"""The largest length that a message can have: 24 bits."""


class SegmentSection(Section):
    """Settings of the segment service alone."""

    name_bytes: ClassVar[int] = KIB
    """Maximum size of a segment's name in UTF-8: it is in every record of the log."""

    reply_bytes: ClassVar[int] = 2 * MIB
    """Maximum data in the answer to one read: clients ask again for the rest."""

    replies_bytes: ClassVar[int] = 64 * MIB
    """Memory for replies to reads that have not left, of all connections; beyond it reads wait. In the second half each
    connection has one reply, of at most 16 KiB."""

    attributes: ClassVar[int] = 1_000
    """Maximum attributes of one segment; beyond them the connection that adds one is closed."""

    connection_writers: ClassVar[int] = 10_000
    """Maximum writers that one connection sets up."""

    tail_readers: ClassVar[int] = 10_000
    """Maximum reads that wait at a segment's end; beyond them, the oldest is answered."""

    cache_bytes: ClassVar[int] = 64 * MIB
    """Memory for the newest blocks, from which readers at the end are answered."""

    snapshot_records: ClassVar[int] = 100_000
    """Records after which a partition's state is written down: what a start has to read at most, in a few seconds."""

    tail_wait: ClassVar[float] = 5
    """Seconds that a read at a segment's end waits for more before it is answered with nothing: clients ask again at once."""

    writer_retention: ClassVar[float] = 7 * 86_400
    """Seconds after which a writer without a connection is forgotten, with its level: clients give up after hours."""

    rights: dict[str, frozenset[Right]] = Field(
        {},
        description="Who may do what, as JSON: a client certificate's subject, or `*` for anybody, to a list of `read`, `append`,"
        " `create` and `destroy` (seal, truncate, delete). Without it and TOKEN_KEY, all may do all but destroy, and clients on"
        " this host that, too.",
    )
    token_key: SecretStr = Field(
        SecretStr(""),
        description="Key of Pravega's delegation tokens, as its controller has it"
        " (`controller.security.auth.delegationToken.signingKey.basis`); prefer `…_FILE`.",
    )
    read_flags: Literal["packed", "bytes"] = Field(
        "packed", description="SegmentRead's two flags in the original dialect: two bits of one byte, or a byte each."
    )
    segments: int = Field(100_000, ge=1, description="Maximum segments; beyond them none is created.")
    writers: int = Field(
        100_000, ge=1, description="Maximum writers of one segment whose levels are known; beyond them none is set up."
    )
    retention_bytes: Bytes = Field(
        0, ge=0, description="Of each segment, about the newest bytes that are kept; 0: all. Whole blocks are removed."
    )
    retention_time: Seconds = Field(
        0,
        ge=0,
        description="Of each segment, what was appended within about this time is kept; 0: all. By the log's time: in a silent"
        " partition nothing ages. Whole blocks are removed.",
    )

    @model_validator(mode="after")
    def _retention(self) -> Self:
        if 0 < self.retention_bytes < MIB:
            raise ValueError("SEGMENT__RETENTION_BYTES is 0, or 1 MiB at least")
        if 0 < self.retention_time < 60:
            raise ValueError("SEGMENT__RETENTION_TIME is 0, or 60 seconds at least")
        return self


def limits_of(limits: LimitSettings, section: SegmentSection) -> SessionLimits:
    """Returns the limits of one client."""
    return SessionLimits(
        min(limits.frame_bytes, FRAME_BYTES), limits.event_bytes,
        section.reply_bytes, section.name_bytes, section.connection_writers,
    )  # fmt: skip


class SegmentSettings(ServiceSettings):
    """Everything that configures ``python -m headrace_segment``."""

    segment: SegmentSection = SegmentSection()
