"""A protocol as one object, from which the stack, the tools, the settings and the pages derive.

The pyproject.toml of its package names it, and nothing else in the repository has to:

    [project.entry-points."headrace.protocols"]
    NAME = "headrace_NAME.protocol:PROTOCOL"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.metrics import MetricDeclaration, ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings, ServiceSettings, TopicSettings
from headrace_common.operations.variables import named_protocols

if TYPE_CHECKING:  # they import aiokafka, and the command line reads this module at each start
    from headrace_common.service.parts import Parts, Runtime

S = TypeVar("S", bound=ServiceSettings)

_NAME: Final = re.compile("[a-z][a-z0-9]*", re.ASCII)
"""It is part of variables, types of CloudEvents and names in Kubernetes."""

_TAKEN: Final = (*ServiceSettings.model_fields, "topics", "lake", "live")


@dataclass(frozen=True)
class TopicPlan:
    """How `headrace_common.topics` makes a topic. `configuration` leaves out what depends on the replicas."""

    name: str
    partitions: int
    configuration: Mapping[str, str]


@dataclass(frozen=True)
class Port:
    """A port that clients connect to, and the setting (`section`, `setting`) that the receiver reads it from."""

    name: str
    port: int
    section: str = "listen"
    setting: str = "port"


@dataclass(frozen=True, kw_only=True)
class Protocol(Generic[S]):
    """A protocol and its receiver.

    `hint` shows a user how to send to it; ``{listen}`` is its address. `curve`: it speaks CURVE where others speak TLS.
    """

    name: str
    """The middle of `ce_type`, the first part of the path in `ce_source`, the section of its own settings: small letters and
    digits, a letter first. A part of the stack, as ``lake``, and a section of settings have theirs already.
    """

    title: str
    """Its name in sentences."""

    listeners: tuple[Port, ...]
    """The first is the main one."""

    ops_port: int
    """Health and metrics over HTTP, beside other receivers on one machine."""

    settings: type[S]
    build: Callable[[Runtime[S]], Parts]
    """Makes the receiver's parts; called inside the event loop, before anything listens."""

    metrics: Callable[[ReceiverMetrics], object] | None = None
    """Declares the metrics that its receiver alone has; `build` calls it, too."""

    topics: Callable[[KafkaSettings, TopicSettings], list[TopicPlan]] | None = None
    """Returns the plans of its own topics, besides those of events and quarantine."""

    client: str = ""
    """``module:name`` of its `session.client.Client`, with which tools and tests talk to a receiver. This and the next two are
    imported where they are used; empty: there is none.
    """

    session: str = ""
    """``module:name`` of its `session.interface.ByteSession` for a peer, the limits and, if it has any, its own settings."""

    again: str = ""
    """``module:name`` of the function from a `session.again.QuarantinedItem` and the receiver's settings to a
    `ReplayOutcome`.
    """

    hint: str
    curve: bool = False

    def own_metrics(self) -> list[MetricDeclaration]:
        """Returns the metrics that its receiver alone has, for the documentation and for what checks queries."""
        catalogue = ReceiverMetrics()
        shared = len(catalogue.table())
        if self.metrics is not None:
            self.metrics(catalogue)
        return catalogue.table()[shared:]


@cache
def installed() -> tuple[Protocol[Any], ...]:
    """Returns the protocols whose packages are installed, by name. Raises `ConfigError` for an entry point that names none."""
    return tuple(map(loaded, named_protocols().values()))


def loaded(entry: EntryPoint) -> Protocol[Any]:
    """Returns the protocol that an entry point names. Raises `ConfigError` if it names none."""
    named = f"the protocol {entry.name} ({entry.value}{f' of the package {entry.dist.name}' if entry.dist else ''})"
    try:
        protocol = entry.load()
    except Exception as error:  # a stranger's module can raise anything
        raise ConfigError(f"{named} cannot be loaded: {type(error).__name__}: {error}") from error
    called = entry.name
    if not isinstance(protocol, Protocol) or protocol.name != called:
        raise ConfigError(f"{named} is no Protocol of this name")
    if not _NAME.fullmatch(called) or called in _TAKEN:
        raise ConfigError(
            f"{named}: a protocol's name has small letters and digits, a letter first, and is none of {', '.join(_TAKEN)}"
        )
    return protocol
