"""The job's own progress: Spark's checkpoint folder, with a marker of ours that ties it to an epoch and to the topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from headrace_lake.halt import HaltError
from headrace_lake.storage import Storage

_MARKER: Final = "headrace.json"
_VOID: Final = "headrace.void"


class Range(NamedTuple):
    """The offsets of one partition in one batch, `start` included, `end` not."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Marker:
    """Whose checkpoint this is."""

    epoch: int
    lake: str  # which tables, see `fence.Fence.lake_id`
    topics: Mapping[str, str]  # topic -> Kafka's id of it
    strays: Mapping[str, Mapping[str, int]]  # topic -> partition -> see `start.Position`; as found when it was claimed


class Checkpoint:
    """A checkpoint folder. Every call blocks on storage."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path

    def marker(self) -> Marker | None:
        """Whose it is; None for a folder that is new, or was made so by `void`. Raises `HaltError` for one that is not ours."""
        if self._storage.exists(f"{self.path}/{_VOID}"):
            self._clear()
        text = self._storage.read(f"{self.path}/{_MARKER}")
        if text is None:
            if self._storage.exists(f"{self.path}/offsets"):
                raise HaltError(
                    f"{self.path} is the checkpoint of another query: name another folder in LAKE__CHECKPOINT"
                )
            return None
        try:
            return Marker(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise HaltError(
                f"{self.path}/{_MARKER} cannot be read ({error}): delete the folder to take over"
            ) from error

    def mark(self, marker: Marker) -> None:
        """Makes the folder ours."""
        self._storage.write(f"{self.path}/{_MARKER}", json.dumps(asdict(marker)))

    def void(self) -> None:
        """Has the next job begin anew, from where the tables end, whoever may still write here until then.

        Only a folder that `marker` calls ours may be voided: what is in it is deleted when `marker` is asked next.
        """
        if not self._storage.exists(f"{self.path}/{_VOID}"):
            self._storage.write(f"{self.path}/{_VOID}", "")

    def _clear(self) -> None:
        """The file that orders it goes last: a kill in between leaves the rest to the next call."""
        for name in self._storage.names(self.path):
            if name != _VOID:
                self._storage.delete(f"{self.path}/{name}")
        self._storage.delete(f"{self.path}/{_VOID}")

    def last_batch(self) -> int:
        """The newest batch that was begun; -1 when none was."""
        return max((int(name) for name in self._storage.names(f"{self.path}/offsets") if name.isdigit()), default=-1)

    def ranges(self, batch: int) -> list[Range]:
        """The offsets of `batch`, which has begun: partitions that have any. The same whenever it is asked."""
        ends = self._offsets(f"offsets/{batch}")
        starts = self._offsets(f"offsets/{batch - 1}" if batch else "sources/0/0")
        # A partition that joined the topic in this batch begins at 0: Spark stops the query when it does not.
        return [
            Range(topic, partition, starts.get((topic, partition), 0), end)
            for (topic, partition), end in sorted(ends.items())
            if end > starts.get((topic, partition), 0)
        ]

    def _offsets(self, name: str) -> dict[tuple[str, int], int]:
        """Both files end in a line of JSON: ``{topic: {partition: offset}}``."""
        text = self._storage.read(f"{self.path}/{name}")
        if text is None:
            raise HaltError(f"{self.path}/{name} is missing: the checkpoint was tampered with; delete it to take over")
        line = text.rstrip().rsplit("\n", 1)[-1]
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(line).items()
            for partition, offset in partitions.items()
        }
