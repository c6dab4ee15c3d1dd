"""The messages of today's dialect. A field with a default may be missing at the end of a message.

`request`: a reply repeats its request's. Levels are event numbers. `trace` is a server's, and empty.
"""

from __future__ import annotations

from typing import Final

from headrace_segment.wire.codes import Kind
from headrace_segment.wire.layout import BOOLEAN, BYTE, DATA, I32, I64, TEXT, UUID, Table

WRITER_BYTES: Final = 16

MESSAGES: Final = Table(grows=True)
_row: Final = MESSAGES.row
_ABOUT: Final = {"request": I64, "segment": TEXT}
_TOKEN: Final = {"token": TEXT("")}
_TRACE: Final = {"trace": TEXT("")}

# Of either side: the wire versions that it speaks; a message that is echoed.
Hello = _row(Kind.HELLO, "Hello", high=I32, low=I32)
KeepAlive = _row(Kind.KEEP_ALIVE, "KeepAlive")

# Of clients. A block's first `whole_bytes` bytes are whole events, and the end's `data` completes the last one.
SetupAppend = _row(Kind.SETUP_APPEND, "SetupAppend", request=I64, writer=UUID, segment=TEXT, **_TOKEN)
AppendBlockEnd = _row(
    Kind.END_APPEND_BLOCK, "AppendBlockEnd",
    writer=UUID, whole_bytes=I32, data=DATA, events=I32, level=I64, request=I64(0),
)  # fmt: skip
ReadSegment = _row(Kind.READ_SEGMENT, "ReadSegment", segment=TEXT, offset=I64, length=I32, **_TOKEN, request=I64(0))
GetSegmentInfo = _row(Kind.GET_SEGMENT_INFO, "GetSegmentInfo", **_ABOUT, **_TOKEN)
CreateSegment = _row(Kind.CREATE_SEGMENT, "CreateSegment", **_ABOUT, rate=I32, scale=BYTE, **_TOKEN, rollover=I64(0))

# Of the server. `previous`: the level in the reply before; `length`: the segment's; `modified`: Unix time in milliseconds.
AppendSetup = _row(Kind.APPEND_SETUP, "AppendSetup", **_ABOUT, writer=UUID, level=I64)
DataAppended = _row(
    Kind.DATA_APPENDED, "DataAppended", writer=UUID, level=I64, previous=I64, request=I64(-1), length=I64(-1)
)
SegmentRead = _row(
    Kind.SEGMENT_READ, "SegmentRead",
    segment=TEXT, offset=I64, at_tail=BOOLEAN, end_of_segment=BOOLEAN, data=DATA, request=I64(0),
)  # fmt: skip
SegmentInfo = _row(
    Kind.SEGMENT_INFO, "SegmentInfo",
    **_ABOUT, exists=BOOLEAN, sealed=BOOLEAN, deleted=BOOLEAN, modified=I64, length=I64, start=I64(0),
)  # fmt: skip
SegmentCreated = _row(Kind.SEGMENT_CREATED, "SegmentCreated", **_ABOUT)
SegmentAlreadyExists = _row(Kind.SEGMENT_ALREADY_EXISTS, "SegmentAlreadyExists", **_ABOUT, **_TRACE)
NoSuchSegment = _row(Kind.NO_SUCH_SEGMENT, "NoSuchSegment", **_ABOUT, **_TRACE, offset=I64(-1))
SegmentIsTruncated = _row(
    Kind.SEGMENT_IS_TRUNCATED, "SegmentIsTruncated", **_ABOUT, start=I64, **_TRACE, offset=I64(-1)
)
OperationUnsupported = _row(Kind.OPERATION_UNSUPPORTED, "OperationUnsupported", request=I64, operation=TEXT, **_TRACE)
