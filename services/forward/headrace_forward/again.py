"""How an item of quarantine becomes a message again. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, cast

import msgpack
import orjson
from headrace_common.record.contract import Attribute, Reason
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_by

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection, ForwardSettings


def read(item: QuarantinedItem, settings: ForwardSettings) -> ReplayOutcome:
    """Reads a whole message, or entries of one, whose attributes have its tag and chunk."""
    about = item.attributes
    session = ForwardSession(peer_of(item), settings.limits, ForwardSection())
    if Attribute.INDEX.value in about:
        message = _message_around(item.content, about, listed=item.reason == Reason.TOO_MANY_EVENTS)
        return read_by(session, item, message, numbered=True)
    return read_by(session, item)


def _message_around(content: bytes, about: Mapping[str, Any], *, listed: bool) -> bytes:
    """Returns a message with these entries. `listed`: of JSON they are an array already."""
    tag, chunk = about.get(ForwardAttribute.TAG.value, ""), about.get(ForwardAttribute.CHUNK.value)
    option = {} if chunk is None else {"chunk": chunk}
    if content[:1] == b"[":
        entries = content if listed else b"[" + content + b"]"
        return b"[%b,%b,%b]" % (orjson.dumps(tag), entries, orjson.dumps(option))
    return cast("bytes", msgpack.packb([tag, content, {key: _packed(value) for key, value in option.items()}]))


def _packed(value: Any) -> Any:
    return b64decode(value["$bin"]) if isinstance(value, dict) else value
