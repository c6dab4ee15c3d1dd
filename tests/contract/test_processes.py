"""What the suite relies on when it looks at processes and files that others end and delete."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.contract.processes import below, bytes_of, command, gone, kill

SLEEPER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "pass"])
print(flush=True)
time.sleep(600)
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose only child has ended and is never waited for."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_one_that_ended_and_was_not_waited_for_has_no_command(sleeper: subprocess.Popen[bytes]) -> None:
    (child,) = below(sleeper.pid)
    while child.status() != psutil.STATUS_ZOMBIE:
        pass
    assert below(sleeper.pid) == [child]
    assert command(child) == []
    assert gone([child.pid])
    assert command(psutil.Process(sleeper.pid))[-1] == SLEEPER
    assert not gone([child.pid, sleeper.pid])


def test_one_that_has_gone_is_not_missed(sleeper: subprocess.Popen[bytes]) -> None:
    process = psutil.Process(sleeper.pid)
    kill(sleeper.pid)
    sleeper.wait()
    assert below(sleeper.pid) == []
    assert command(process) == []
    assert gone([sleeper.pid])
    kill(sleeper.pid)


def test_a_deleted_file_counts_nothing(tmp_path: Path) -> None:
    files = [tmp_path / "kept", tmp_path / "deleted"]
    for file in files:
        file.write_bytes(b"12345")
    assert bytes_of(files) == 10
    os.unlink(files[1])
    assert bytes_of(files) == 5
