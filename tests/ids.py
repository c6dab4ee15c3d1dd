"""The rule by which deterministic ids are made, apart from the product."""

from __future__ import annotations

import hashlib
import struct


def hashed(*fields: bytes) -> str:
    """The first 128 bits of a SHA-256 over the protocol's name and the fields, each as u32 length and bytes."""
    written = b"".join(struct.pack(">I", len(each)) + each for each in fields)
    return hashlib.sha256(written).hexdigest()[:32]
