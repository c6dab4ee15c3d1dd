"""The fields that Headrace reads from a v2 event. It only checks that the rest is JSON, and passes it on byte for byte."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

_ABSENT: Final = Raw(b"null")


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


class LogFields(Struct, gc=False):
    """`log`."""

    file: Raw | UnsetType = UNSET
    offset: int | None = None


class EventFields(Struct, gc=False):
    """`event`."""

    dataset: str | None = None


class Host(Struct, gc=False):
    """`host`."""

    name: str | None = None


class BeatsFields(Struct, gc=False):
    """The fields of an event that Headrace reads, as Beats write them."""

    time: str | None = field(name="@timestamp", default=None)
    metadata: Metadata | None = field(name="@metadata", default=None)
    agent: Agent | None = None
    log: LogFields | str | None = None  # a text if a container's log fields are at the top level
    host: Host | str | None = None
    type: str | None = None
    message: str | None = None
    tags: Raw = _ABSENT
    fields: Raw = _ABSENT
    data_stream: Raw = _ABSENT
    event: EventFields | None = None


def host_of(fields: BeatsFields) -> str | None:
    """Returns the event's host: `host.name`, `agent.hostname` or `host`."""
    host, agent = fields.host, fields.agent
    name = host.name if type(host) is Host else None
    if not name and agent is not None:
        name = agent.hostname
    return host if not name and type(host) is str else name


def stream_of(fields: BeatsFields) -> str | None:
    """Returns the event's stream: the index, the Beat, or `type`."""
    metadata = fields.metadata
    subject = None if metadata is None else metadata.raw_index or metadata.index or metadata.beat
    return subject or fields.type
