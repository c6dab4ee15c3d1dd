"""Whether settings, certificates, Kafka and the topics are as they must be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Final

from headrace_common.kafka.client import Topic, describe
from headrace_common.listening.tls import client_tls
from headrace_common.operations.certificates import validity
from headrace_common.operations.errors import ConfigError, HeadraceError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import (
    KafkaSettings,
    LimitSettings,
    ServiceSettings,
    Settings,
    TlsSettings,
    load,
)
from headrace_common.protocol import installed

from headrace_cli.stack.reach import check_reachable

RECORD_BYTES: Final = 64 * 1024
"""Room for an event's headers in its batch, and for the batch's own."""
SOON: Final = timedelta(days=30)
TOPICS: Final = "python -m headrace_common.topics"

_RECEIVERS: Final = {protocol.name: protocol.settings for protocol in installed()}
_OTHERS: Final[Mapping[str, str]] = {
    "lake": "headrace_lake.configuration.settings:LakeProcessSettings",
    "topics": "headrace_common.operations.settings:TopicsProcessSettings",
}
NAMES: Final = (*_RECEIVERS, *_OTHERS)
"""The parts that have settings."""

Finding = tuple[str, bool | None, str]
"""What was checked, whether it is as it must be (None: in doubt), and the reason with what mends it."""


def settings_class(part: str) -> type[Settings]:
    """Return the class of a part's settings; imports it."""
    found: type[Settings] = _RECEIVERS.get(part) or resolve_name(_OTHERS[part])
    return found


def findings(parts: Sequence[str], *, offline: bool) -> Iterator[Finding]:
    """Yield the findings on these parts; what parts share comes with each of them. `offline`: without Kafka."""
    loaded: dict[str, Settings] = {}
    for part in parts:
        try:
            loaded[part] = load(settings_class(part))
        except ConfigError as error:
            for line in str(error).splitlines():
                yield "settings", False, line
    if loaded:
        yield "settings", True, f"of {', '.join(loaded)}"
    receivers = [settings for settings in loaded.values() if isinstance(settings, ServiceSettings)]
    for settings in receivers:
        yield from of_certificates(settings.tls)
    if loaded and not offline:
        kafka = dict(next(iter(loaded.values())))["kafka"]  # each part's settings have it; their base class has not
        largest = max((each.limits for each in receivers), key=lambda each: each.event_bytes, default=None)
        yield from _of_kafka(kafka, (kafka.segments_topic,) if "segment" in loaded else (), largest)


def of_topic(topic: Topic, limits: LimitSettings | None) -> Iterator[Finding]:
    """Yield the findings on a topic: its settings for the promise, and its room for the largest event."""
    for what in topic.weak:
        mend = "kafka-configs.sh sets it, kafka-reassign-partitions.sh moves replicas"
        yield "topics", False, f"{topic.name}: {what}; {mend}"
    if limits is not None and topic.max_message_bytes < limits.event_bytes + RECORD_BYTES:
        small = f"max.message.bytes ({topic.max_message_bytes:,}) does not hold an event of LIMITS__EVENT_BYTES"
        mend = "raise it with kafka-configs.sh, or lower LIMITS__EVENT_BYTES"
        yield "topics", False, f"{topic.name}: {small} ({limits.event_bytes:,}), which Kafka would refuse: {mend}"


def of_certificates(tls: TlsSettings, now: datetime | None = None) -> Iterator[Finding]:
    """Yield whether a receiver can use the files, and until when each certificate is valid. Reads the files; raises nothing."""
    if tls.cert is None:
        return
    try:
        client_tls(tls, ReceiverMetrics())
    except ConfigError as error:
        yield "certificate", False, str(error)
        return
    for setting, path in (("TLS__CERT", tls.cert), ("TLS__CLIENT_CA", tls.client_ca)):
        if path is not None:
            begins, ends = (datetime.fromtimestamp(moment, UTC) for moment in validity(path))
            at = now or datetime.now(UTC)
            fine = False if not begins <= at < ends else None if ends - at < SOON else True
            yield "certificate", fine, f"{setting} {path}: from {begins:%Y-%m-%d %H:%M} until {ends:%Y-%m-%d %H:%M} UTC"


def _of_kafka(kafka: KafkaSettings, also: Sequence[str], largest: LimitSettings | None) -> Iterator[Finding]:
    async def ask() -> list[Topic]:
        await check_reachable(kafka)
        return await describe(kafka, also)

    try:
        topics = asyncio.run(ask())
    except HeadraceError as error:
        missing = f": {TOPICS} makes it" if "is missing" in str(error) else ""
        yield "kafka", False, f"{error}{missing}"
        return
    yield "kafka", True, f"{kafka.bootstrap_servers} answers; {', '.join(topic.name for topic in topics)} exist"
    if unread := ", ".join(topic.name for topic in topics if not topic.configuration):
        doubt = "so nothing can say whether they keep the promise: allow DESCRIBE_CONFIGS on the topics"
        yield "kafka", None, f"the settings of {unread} may not be read, {doubt}"
    found = [each for at, topic in enumerate(topics) for each in of_topic(topic, largest if at < 2 else None)]
    yield from found or [("topics", True, "keep the promise, and hold the largest event")]
