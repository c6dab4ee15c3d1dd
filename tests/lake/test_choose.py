"""Which index a job chooses, what it refuses, and how many tasks land a batch."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.dedup import choose
from headrace_lake.dedup.arrays_index import ArraysIndex
from headrace_lake.dedup.choose import open_index
from headrace_lake.landing.gathered import tasks
from headrace_lake.spark.jvm import CompilerError
from structlog.testing import CapturingLogger

HEAP = 1 << 30


@pytest.mark.parametrize(
    ("master", "settings", "allowed", "chosen"),
    [
        ("local[*]", {}, True, HEAP // 4),
        ("local[*]", {"dedup_memory": HEAP // 2}, True, HEAP // 2),
        ("local[*]", {"dedup_memory": HEAP // 2 + 1}, True, r"\(\d+\) is more than half .* raise LAKE__DRIVER_MEMORY"),
        ("local[*]", {"dedup": "arrays"}, True, ArraysIndex),
        ("local[*]", {}, False, ArraysIndex),
        ("local-cluster[2,1,1024]", {}, True, ArraysIndex),
        ("yarn", {"dedup_memory": HEAP}, True, ArraysIndex),  # it is not in the heap
        *((master, {"horizon": 0}, True, type(None)) for master in ("local[*]", "k8s://https://host")),
    ],
)
def test_the_way_fits_the_master(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, Any], allowed: bool, chosen: Any
) -> None:
    """`chosen`: the bytes of the map, the kind of another index, or why there is none."""
    in_jvm = Mock(side_effect=None if allowed else CompilerError("InaccessibleObjectException: no"))
    monkeypatch.setattr(choose, "MapIndex", in_jvm)
    runtime = SimpleNamespace(getRuntime=lambda: SimpleNamespace(maxMemory=lambda: HEAP))
    monkeypatch.setattr(choose, "java_class", lambda *_: runtime)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    log: Any = CapturingLogger()
    with pytest.raises(ConfigError, match=chosen) if isinstance(chosen, str) else nullcontext():
        index = open_index(spark, LakeSettings(**settings), "id", log)
        assert chosen == in_jvm.call_args.args[-1] if index is in_jvm.return_value else type(index) is chosen


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
