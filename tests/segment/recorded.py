"""The recorded bytes: `original` was written field by field by Java's `DataOutputStream`, the others by Pravega's encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "vectors"
W1 = bytes.fromhex("00112233445566778899aabbccddeeff")
W2 = bytes.fromhex("f0e0d0c0b0a090807060504030201000")


def vectors(folder: str) -> dict[str, dict[str, Any]]:
    """By name. `data` is what was recorded, `replies` what came back, if it is a conversation."""
    found = {}
    for vector in json.loads((VECTORS / folder / "vectors.json").read_text()):
        name = vector["name"]
        data = (VECTORS / folder / f"{name}.bin").read_bytes()
        assert data.hex() == vector["hex"]
        replies = VECTORS / folder / f"{name}.reply.bin"
        found[name] = {**vector, "data": data, "replies": replies.read_bytes() if replies.exists() else None}
    return found


ORIGINAL = vectors("original")
CONVERSATIONS = {name: vector for name, vector in ORIGINAL.items() if vector["replies"] is not None}
TODAY = vectors("pravega-0.13.0")
