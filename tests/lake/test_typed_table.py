"""The example of a typed table: each event of a stream once, also without its checkpoint."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_lake.tables.layout import EVENTS
from pyspark.sql import SparkSession

from tests.lake.test_query import event, make

pytestmark = pytest.mark.spark
FILE = Path(__file__).parents[2] / "spark_jobs/examples/typed_table.py"


def test_each_event_of_a_stream_is_there_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(FILE))["main"]
    lake, target, checkpoint = tmp_path / "lake", tmp_path / "typed", tmp_path / "checkpoint"
    where = [str(lake), "web", str(target), str(checkpoint)]

    def land(*bodies: str, stream: str = "web") -> None:
        first = DeltaTable(str(lake / EVENTS)).to_pyarrow_table().num_rows if lake.exists() else 0
        make(lake, events=[event(first + n, stream=stream, body=body) for n, body in enumerate(bodies)])

    def values() -> list[tuple[int, int | None]]:
        rows = spark.read.format("delta").load(str(target)).orderBy("offset").select("offset", "value.status").collect()
        return [tuple(row) for row in rows]

    land('{"status": 200, "path": "/"}', '{"status": 404}')
    land('{"status": 1}', stream="other")
    main(where)
    schema = capsys.readouterr().out.strip()
    assert schema == "`path` string, `status` bigint"

    main([*where, "--schema", schema])
    assert values() == [(0, 200), (1, 404)]
    land('{"status": "gone"}')
    DeltaTable(str(lake / EVENTS)).delete('"offset" = 1')  # an erasure
    main([*where, "--schema", schema])
    assert values() == [(0, 200), (1, 404), (3, None)]
    shutil.rmtree(checkpoint)
    main([*where, "--schema", schema])
    assert values() == [(0, 200), (1, 404), (3, None)]
