"""Keys of attributes that Forward's records alone have."""

from __future__ import annotations

from enum import StrEnum


class ForwardAttribute(StrEnum):
    """See `headrace_common.record.contract.Attribute`."""

    CHUNK = "chunk"  # the chunk as text, or {"$bin": base64} if it is not text
    TAG = "tag"  # the tag of a quarantined entry
    METADATA = "metadata"  # an entry's metadata map, else its message's
    GROUP = "group"  # "start" or "end" of a group of records that Fluent Bit has from OTLP; no log itself
