"""A Ctrl-C while a receiver's modules load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_common.protocol import installed

from tests.contract.waiting import PATIENCE


@pytest.mark.parametrize("module", [protocol.module for protocol in installed()])
def test_it_ends_the_process_without_a_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / "aiokafka.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == b""
