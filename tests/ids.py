"""The rule by which deterministic ids are made, apart from the product."""

from __future__ import annotations

import hashlib
import struct


def hashed(*fields: bytes) -> str:
    """BLAKE2b of 128 bits over the protocol's name and the fields, each as u32 length and bytes."""
    written = b"".join(struct.pack(">I", len(each)) + each for each in fields)
    return hashlib.blake2b(written, digest_size=16).hexdigest()
