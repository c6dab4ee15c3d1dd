"""`headrace demo`: every step counts the same, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.cli.standin import headrace
from tests.contract.processes import command
from tests.lake.lander import QUICK


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_it_counts_the_same_everywhere_and_leaves_nothing(tmp_path: Path) -> None:
    done = headrace("demo", "--events", "2000", **QUICK, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    names = ("sent", "acknowledged", "on the topic", "in the lake", "of them distinct ids")
    counted = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith(names)]
    assert counted == ["2,000"] * len(names)
    assert [process for process in psutil.process_iter() if str(tmp_path) in " ".join(command(process))] == []
    assert list(tmp_path.glob("headrace-*")) == []
