"""The plan of a topic, by which `headrace_common.topics` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TopicPlan:
    """How a topic is made. `configuration` leaves out what depends on the replicas. `setting`: the variable that names it,
    without prefix.
    """

    setting: str
    name: str
    partitions: int
    configuration: Mapping[str, str]
