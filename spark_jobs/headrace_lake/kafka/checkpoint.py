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


def of_epoch(storage: Storage, root: str, epoch: int) -> str:
    """Returns a new folder below `root` for the checkpoint of `epoch`, and deletes those of other epochs. Blocks on storage.

    The name has a random part: tables that were restored from a copy claim the same epoch again.
    """
    for name in storage.names(root):
        if _OURS.fullmatch(name):
            storage.delete(f"{root}/{name}")
    return f"{root}/epoch-{epoch}-{uuid.uuid4().hex}"


def ranges(storage: Storage, checkpoint: str, batch: int) -> list[Range]:
    """Returns the offsets of `batch`, which has begun, without empty ranges. Blocks on storage. Raises `HaltError`."""
    until, starts = ends(storage, checkpoint, batch), ends(storage, checkpoint, batch - 1)
    # A partition that is new in this batch begins at 0; otherwise Spark stops the query.
    return [
        Range(topic, partition, starts.get((topic, partition), 0), end)
        for (topic, partition), end in sorted(until.items())
        if end > starts.get((topic, partition), 0)
    ]


def ends(storage: Storage, checkpoint: str, batch: int) -> dict[tuple[str, int], int]:
    """Returns where `batch` ends, by partition; -1: where the checkpoint begins. Blocks on storage. Raises `HaltError`.

    The last line of the file is JSON: ``{topic: {partition: offset}}``.
    """
    path = f"{checkpoint}/offsets/{batch}" if batch >= 0 else f"{checkpoint}/sources/0/0"
    text = storage.read(path)
    try:
        line = (text or "").rstrip().rsplit("\n", 1)[-1]
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(line).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise HaltError(f"the checkpoint is damaged: {path} ({error}); start again") from error
