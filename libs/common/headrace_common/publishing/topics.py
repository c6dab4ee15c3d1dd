"""The topics that a receiver writes, as Kafka describes them: their partitions and limits."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_common.kafka.client import Topic, describe
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings


class Topics:
    """The topics of events and quarantine. `refresh` reads them first."""

    events: Topic
    quarantine: Topic

    def __init__(self, settings: KafkaSettings, metrics: ReceiverMetrics, log: Log) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = log

    async def refresh(self) -> None:
        """Reads them from Kafka again. Raises `DeliveryError` and `ConfigError`."""
        self.events, self.quarantine = found = await describe(self._settings)
        tell_weak(found, self._metrics, self._log)

    def named(self, name: str) -> Topic:
        """Returns the topic of events or of quarantine."""
        return self.quarantine if name == self.quarantine.name else self.events


def tell_weak(topics: Sequence[Topic], metrics: ReceiverMetrics, log: Log) -> None:
    """Says which of the topics have settings that do not keep the promise."""
    weak = {topic.name: topic.weak for topic in topics if topic.weak}
    if weak:
        metrics.topic_weak.set(1)
        log.warning("topic settings do not keep the promise", topics=weak)
