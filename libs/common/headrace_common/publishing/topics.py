"""The topics that a receiver writes, as Kafka describes them: their partitions and limits."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_common.kafka.client import Topic, describe
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings


class Topics:
    """The topics of events and quarantine, and the service's own. `refresh` reads them first."""

    events: Topic
    quarantine: Topic

    def __init__(self, settings: KafkaSettings, metrics: ReceiverMetrics, log: Log) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self.required: Sequence[str] = ()
        """The service's own topics, which must exist too."""
        self.own: dict[str, Topic] = {}
        """The service's own topics by name."""

    async def refresh(self) -> None:
        """Reads them from Kafka again. Raises `DeliveryError` and `ConfigError`."""
        self.events, self.quarantine, *own = topics = await describe(self._settings, self.required)
        self.own = {topic.name: topic for topic in own}
        weak = {topic.name: topic.weak for topic in topics if topic.weak}
        self._metrics.topic_weak.set(1 if weak else 0)
        if weak:
            self._log.warning("topic settings do not keep the promise", topics=weak)

    def named(self, name: str) -> Topic:
        """Returns the topic of events or of quarantine."""
        return self.quarantine if name == self.quarantine.name else self.events
