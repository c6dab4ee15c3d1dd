"""A message's tag: the first element."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.values import bin_or_text, to_json, unpack


def read_tag(raw: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """Returns (subject, bytes for the id, attributes). A tag that is empty or not text becomes ``-``, and its original is kept.

    Never raises: the reject of a whole message needs it too.
    """
    try:
        value = unpack(raw)
    except ValueError:
        value = None
    if isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        text = bin_or_text(content)
        if isinstance(text, str) and text:
            return text, content, {}
        return "", content, {ForwardAttribute.TAG.value: text}
    try:
        return "", raw, {ForwardAttribute.TAG.value: orjson.Fragment(to_json(raw))}
    except ValueError:
        return "", raw, {ForwardAttribute.TAG.value: {"$bin": b64encode(raw).decode()}}
