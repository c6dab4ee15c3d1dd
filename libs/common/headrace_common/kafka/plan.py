"""The plan of a topic, by which `headrace_common.topics` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NO_LIMIT: Final = -1
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class TopicPlan:
    """The least that a topic needs. `configuration` leaves out what depends on the replicas (`for_replicas`).

    `setting`: the variable that names it, without prefix. `grows`: an existing topic may get more partitions.
    """

    setting: str
    name: str
    partitions: int
    configuration: Mapping[str, str]
    grows: bool = True

    def for_replicas(self, replicas: int) -> dict[str, str]:
        """Returns the configuration with `replicas` replicas: with three, one may be down and nothing is lost."""
        return {**self.configuration, **({"min.insync.replicas": "2"} if replicas >= 3 else {})}
