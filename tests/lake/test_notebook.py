"""The notebook `docs/lake.ipynb`: its cells run, three engines agree, and it names no machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.lake.lander import QUICK_START
from tests.lake.test_query import MOMENT, event, make

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "lake.ipynb"
TOLD = """
import json
told = {
    "polars": [[str(minute.replace(tzinfo=None)), count] for minute, count in by_polars.rows()],
    "duckdb": [[str(minute.replace(tzinfo=None)), count] for minute, count in by_duckdb],
    "spark": [[str(minute.replace(tzinfo=None)), count] for minute, count in by_spark],
    "bars": [round(bar.get_height()) for bar in axes.patches],
}
print(json.dumps(told))
"""


def cells() -> list[dict[str, Any]]:
    document = json.loads(NOTEBOOK.read_text())
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    return document["cells"]


def test_it_has_no_outputs() -> None:
    for cell in cells():
        assert cell["cell_type"] in ("code", "markdown")
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert len({cell["id"] for cell in cells()}) == len(cells())


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.requires("java")
def test_its_cells_run_and_three_engines_agree(tmp_path: Path) -> None:
    minutes = [0, 0, 1, 1, 1, 7]
    rows = [event(n, received_time=MOMENT + timedelta(minutes=later)) for n, later in enumerate(minutes)]
    make(tmp_path / "lake", events=rows)
    code = "\n".join("".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code")
    variables = {
        **os.environ, "LAKE": str(tmp_path / "lake"), "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC",
        "JDK_JAVA_OPTIONS": QUICK_START,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code + TOLD],
        env=variables,
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [count for _, count in told["polars"]] == [2, 3, 1] == told["bars"]
    assert told["polars"] == told["duckdb"] == told["spark"]
