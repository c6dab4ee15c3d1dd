"""The job's progress: Spark's checkpoint folder, with our marker, which ties it to an epoch and to the topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.storage import Storage

_MARKER: Final = "headrace.json"
_VOID: Final = "headrace.void"


class Range(NamedTuple):
    """The offsets of one partition in one batch, from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class CheckpointMarker:
    """Says to which job and tables a checkpoint belongs."""

    epoch: int
    lake: str  # which tables, see `fence.Fence.lake_id`
    topics: Mapping[str, str]  # topic -> Kafka's id of it
    strays: Mapping[str, Mapping[str, int]]  # topic -> partition -> see `start.Position`; as of the claim


class Checkpoint:
    """A checkpoint folder. Every call blocks on storage."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path

    def marker(self) -> CheckpointMarker | None:
        """Returns the marker; None if the folder is new, or was voided. Raises `HaltError` if it is another query's
        checkpoint.
        """
        if self._storage.exists(f"{self.path}/{_VOID}"):
            self._clear()
        text = self._storage.read(f"{self.path}/{_MARKER}")
        if text is None:
            if self._storage.exists(f"{self.path}/offsets"):
                raise HaltError(
                    f"{self.path} is the checkpoint of another query: name another folder in LAKE__CHECKPOINT, or delete this"
                    " one if it is left over"
                )
            return None
        try:
            return CheckpointMarker(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise HaltError(
                f"{self.path}/{_MARKER} cannot be read ({error}): delete the folder to take over"
            ) from error

    def mark(self, marker: CheckpointMarker) -> None:
        """Writes the marker into a new folder."""
        self._storage.write(f"{self.path}/{_MARKER}", json.dumps(asdict(marker)))

    def void(self) -> None:
        """Makes the next job start from where the tables end, even if another job still writes to this folder.

        Void only a folder that has our marker: the next call of `marker` deletes its content.
        """
        if not self._storage.exists(f"{self.path}/{_VOID}"):
            self._storage.write(f"{self.path}/{_VOID}", "")

    def _clear(self) -> None:
        """Deletes the void file last: after a kill, the next call deletes the rest."""
        for name in self._storage.names(self.path):
            if name != _VOID:
                self._storage.delete(f"{self.path}/{name}")
        self._storage.delete(f"{self.path}/{_VOID}")

    def last_batch(self) -> int:
        """Returns the newest batch that was begun; -1 if none was."""
        return max((int(name) for name in self._storage.names(f"{self.path}/offsets") if name.isdigit()), default=-1)

    def committed(self, batch: int) -> bool:
        """Returns whether Spark knows that `batch` is done; it was written to all tables before."""
        return self._storage.exists(f"{self.path}/commits/{batch}")

    def ends(self, batch: int) -> dict[tuple[str, int], int]:
        """Returns where `batch` ends, by partition; -1: where the checkpoint begins. A new partition begins at 0."""
        return self._offsets(f"offsets/{batch}" if batch >= 0 else "sources/0/0")

    def ranges(self, batch: int) -> list[Range]:
        """Returns the offsets of `batch`, which has begun, without empty ranges. Every call gives the same answer."""
        ends, starts = self.ends(batch), self.ends(batch - 1)
        # A partition that is new in this batch begins at 0; otherwise Spark stops the query.
        return [
            Range(topic, partition, starts.get((topic, partition), 0), end)
            for (topic, partition), end in sorted(ends.items())
            if end > starts.get((topic, partition), 0)
        ]

    def _offsets(self, name: str) -> dict[tuple[str, int], int]:
        """Reads the last line of a file, which is JSON: ``{topic: {partition: offset}}``. Raises `HaltError`."""
        text = self._storage.read(f"{self.path}/{name}")
        if text is None:
            raise HaltError(
                f"{self.path}/{name} is missing: the checkpoint was changed by hand; delete it to take over"
            )
        line = text.rstrip().rsplit("\n", 1)[-1]
        try:
            return {
                (topic, int(partition)): int(offset)
                for topic, partitions in json.loads(line).items()
                for partition, offset in partitions.items()
            }
        except (ValueError, AttributeError, TypeError) as error:
            raise HaltError(
                f"{self.path}/{name} is damaged ({error}), as after a loss of power: delete the checkpoint {self.path} to take"
                " over from where the tables end"
            ) from error
