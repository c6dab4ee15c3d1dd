"""What ``./headrace test`` hands to pytest."""

from __future__ import annotations

import pytest
from headrace_cli.check import MOST_WORKERS, spread


def test_one_core_runs_one_test_after_the_other() -> None:
    assert spread(1) == []


@pytest.mark.parametrize(("cores", "workers"), [(2, 2), (MOST_WORKERS, MOST_WORKERS), (MOST_WORKERS + 1, MOST_WORKERS)])
def test_more_cores_share_the_files(cores: int, workers: int) -> None:
    assert spread(cores) == ["-n", str(workers), "--dist", "loadfile"]
