"""What is read of a v2 event; the rest is only checked to be JSON and goes through byte for byte."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field


class Metadata(Struct, gc=False):
    """`@metadata`."""

    id: str | None = field(name="_id", default=None)
    raw_index: str | None = None
    index: str | None = None
    beat: str | None = None


class Agent(Struct, gc=False):
    """`agent`."""

    id: str | None = None
    ephemeral_id: str | None = None
    hostname: str | None = None


class Log(Struct, gc=False):
    """`log`."""

    file: Raw | UnsetType = UNSET
    offset: int | None = None


class Host(Struct, gc=False):
    """`host`."""

    name: str | None = None


class Fields(Struct, gc=False):
    """The fields of an event that matter here, as Beats write them."""

    time: str | None = field(name="@timestamp", default=None)
    metadata: Metadata | None = field(name="@metadata", default=None)
    agent: Agent | None = None
    log: Log | str | None = None  # a text where containers' logs are at the top
    host: Host | str | None = None
    type: str | None = None
    message: str | None = None


_read_loosely = msgspec.json.Decoder(dict[str, Raw]).decode
_NAMES: Final = {info.encode_name: info for info in msgspec.structs.fields(Fields)}
_DECODERS: Final = {name: msgspec.json.Decoder(info.type).decode for name, info in _NAMES.items()}


def loosely(raw: bytes) -> Fields:
    """The fields of an object some of which have another type than Beats give them: those count as absent."""
    found: dict[str, Any] = {}
    for name, value in _read_loosely(raw).items():
        info = _NAMES.get(name)
        if info is not None:
            try:
                found[info.name] = _DECODERS[name](value)
            except msgspec.ValidationError:
                continue
    return Fields(**found)


def host_of(fields: Fields) -> str | None:
    """`host.name`, `agent.hostname` or `host`."""
    host, agent = fields.host, fields.agent
    name = host.name if type(host) is Host else None
    if not name and agent is not None:
        name = agent.hostname
    return host if not name and type(host) is str else name


def stream_of(fields: Fields) -> str | None:
    """The index, the Beat, or `type`."""
    metadata = fields.metadata
    subject = None if metadata is None else metadata.raw_index or metadata.index or metadata.beat
    return subject or fields.type
