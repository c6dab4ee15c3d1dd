"""How many connections a process may have, by the files that it may open."""

from __future__ import annotations

import resource
from typing import Final

OWN_FILES: Final = 100
"""Files that a receiver opens beside its connections: Kafka's, and those of the operations port."""


def most_connections(wanted: int) -> int:
    """Returns `wanted`, or fewer if these would leave no files for the process itself: it would neither reach Kafka nor answer a
    probe, and no silent client would make way.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, max(1, files - OWN_FILES))
