"""Which index a job chooses, what it refuses, what it says when memory runs out, and how many tasks land a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.dedup import choose
from headrace_lake.dedup.arrays_index import ArraysIndex
from headrace_lake.dedup.choose import open_index
from headrace_lake.dedup.index import DedupIndex, IndexState, NoIndex
from headrace_lake.landing.freshness import Ages
from headrace_lake.landing.gathered import tasks
from headrace_lake.landing.landing import BatchResult
from headrace_lake.landing.plan import DedupStatus
from headrace_lake.spark.jvm import CompilerError
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import LakeHealth
from structlog.testing import CapturingLogger

HEAP = 1 << 30


def spark(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


def java_class(_: object, name: str) -> Any:
    assert name == "java.lang.Runtime"
    return SimpleNamespace(getRuntime=lambda: SimpleNamespace(maxMemory=lambda: HEAP))


class Map:
    def __init__(self, *where: object) -> None:
        self.most = where[-1]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(choose, "MapIndex", Map)
    monkeypatch.setattr(choose, "java_class", java_class)

    def open_with(master: str, **settings: Any) -> DedupIndex:
        return open_index(spark(master), LakeSettings(**settings), "id", CapturingLogger())  # type: ignore[arg-type]

    return open_with


@pytest.mark.parametrize(
    ("master", "dedup", "kind"),
    [
        ("local[*]", "auto", Map),
        ("local[*]", "arrays", ArraysIndex),
        ("local[*]", "off", NoIndex),
        ("local-cluster[2,1,1024]", "auto", ArraysIndex),
        ("k8s://https://host", "off", NoIndex),
        ("local-cluster[2,1,1024]", "map", None),
    ],
)
def test_the_way_fits_the_master(chosen: Any, master: str, dedup: str, kind: type | None) -> None:
    """`kind`: None if each executor would have a map of its own."""
    if kind is not None:
        assert isinstance(chosen(master, dedup=dedup), kind)
        return
    with pytest.raises(ConfigError, match=r"LAKE__DEDUP is map, and the master is .* set auto or arrays"):
        chosen(master, dedup=dedup)


def test_more_memory_than_half_of_the_heap_is_refused(chosen: Any) -> None:
    assert chosen("local[*]", dedup_memory=HEAP // 2).most == HEAP // 2
    assert chosen("local[*]").most == HEAP // 4
    with pytest.raises(ConfigError, match=r"LAKE__DEDUP_MEMORY \(\d+\) is more than half .* raise LAKE__DRIVER_MEMORY"):
        chosen("local[*]", dedup_memory=HEAP // 2 + 1)
    assert isinstance(chosen("yarn", dedup_memory=HEAP), ArraysIndex), "it is not in the heap"


def test_where_the_jvm_does_not_allow_the_map_auto_takes_arrays(chosen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise CompilerError("InaccessibleObjectException: no")

    monkeypatch.setattr(choose, "MapIndex", refuses)
    assert isinstance(chosen("local[*]"), ArraysIndex)
    with pytest.raises(ConfigError, match="which this JVM does not allow: InaccessibleObjectException: no"):
        chosen("local[*]", dedup="map")


def test_memory_that_ran_out_is_said_while_it_is_ready() -> None:
    health = LakeHealth(LakeMetrics())
    health.set_waiting("")
    for short, notes in (
        (False, []), (True, ["resends are recognised within 100 s only: LAKE__DEDUP_MEMORY is too small"]), (False, []),
    ):  # fmt: skip
        status = DedupStatus(IndexState(80, 6400, 1), 100, short)
        health.landed(BatchResult(1, 10, 7, 1.0, ends={}, ages=Ages([]), duplicates={}, dedup_status=status))
        assert (health.notes(), health.ready_problems()) == (notes, [])


@pytest.mark.parametrize(
    ("sizes", "parallelism", "wanted"),
    [
        ([50] * 200, 64, 1),
        ([2_500] * 200, 64, 50),
        ([4_000] * 200, 64, 64),
        ([49_998, *[1] * 7], 2, 3),
        ([100_000] * 200, 2, 200),
    ],
)
def test_tasks(sizes: list[int], parallelism: int, wanted: int) -> None:
    assert tasks(sizes, parallelism) == wanted
