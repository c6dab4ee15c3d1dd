"""Spark's checkpoint of one epoch: scratch that only that epoch's query reads. The tables say where the next one begins."""

from __future__ import annotations

import json
import re
import uuid
from typing import Final, NamedTuple

from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.storage import Storage

_OURS: Final = re.compile(r"epoch-\d+-[0-9a-f]{32}")


class Range(NamedTuple):
    """The offsets of one partition in one batch, from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int


def of_epoch(storage: Storage, root: str, epoch: int) -> Checkpoint:
    """Returns the checkpoint of `epoch` in a new folder below `root`, and deletes those of other epochs. Blocks on storage.

    The name has a random part: tables that were restored from a copy claim the same epoch again.
    """
    for name in storage.names(root):
        if _OURS.fullmatch(name):
            storage.delete(f"{root}/{name}")
    return Checkpoint(storage, f"{root}/epoch-{epoch}-{uuid.uuid4().hex}")


class Checkpoint:
    """A checkpoint folder. Every call blocks on storage."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path

    def ranges(self, batch: int) -> list[Range]:
        """Returns the offsets of `batch`, which has begun, without empty ranges."""
        ends, starts = self._ends(batch), self._ends(batch - 1)
        # A partition that is new in this batch begins at 0; otherwise Spark stops the query.
        return [
            Range(topic, partition, starts.get((topic, partition), 0), end)
            for (topic, partition), end in sorted(ends.items())
            if end > starts.get((topic, partition), 0)
        ]

    def _ends(self, batch: int) -> dict[tuple[str, int], int]:
        """Returns where `batch` ends, by partition; -1: where the checkpoint begins.

        The last line of the file is JSON: ``{topic: {partition: offset}}``. Raises `HaltError`.
        """
        path = f"{self.path}/offsets/{batch}" if batch >= 0 else f"{self.path}/sources/0/0"
        text = self._storage.read(path)
        try:
            line = (text or "").rstrip().rsplit("\n", 1)[-1]
            return {
                (topic, int(partition)): int(offset)
                for topic, partitions in json.loads(line).items()
                for partition, offset in partitions.items()
            }
        except (ValueError, AttributeError, TypeError) as error:
            raise HaltError(f"the checkpoint is damaged: {path} ({error}); start again") from error
