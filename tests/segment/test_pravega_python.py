"""Pravega's own Python client, version 0.3.8, which is made of its Rust client, beside a small controller of ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(20 * PATIENCE)]

CLIENT = Path(__file__).parent / "clients" / "python"
PACKAGES = ("pravega==0.3.8", "grpcio==1.76.0", "grpcio-tools==1.76.0")
EVENTS = sized(1_000, 1_000, 20_000)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the client, and the controller's generated modules in its folder."""
    folder = tmp_path_factory.mktemp("pravega")
    python = folder / "bin" / "python"
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
        [
            *(python, "-m", "grpc_tools.protoc", f"-I{CLIENT}", CLIENT / "controller.proto"),
            *(f"--python_out={folder}", f"--grpc_python_out={folder}"),
        ],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return python


def run(python: Path, port: int) -> subprocess.CompletedProcess[str]:
    """Runs the client beside a controller of the service at `port`."""
    environment = {"PYTHONPATH": str(python.parent.parent)}
    command: list[str | Path] = [python, CLIENT / "controller.py", "127.0.0.1", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as controller:
        try:
            assert controller.stdout is not None
            command = [python, CLIENT / "write.py", controller.stdout.readline().strip(), str(EVENTS), "python"]
            return subprocess.run(
                command, capture_output=True, text=True, timeout=5 * PATIENCE, env=environment, check=False
            )
        finally:
            controller.kill()


async def test_what_it_writes_is_stored_once_and_in_order(
    python: Path, own_segments: KafkaSettings, start: Receivers
) -> None:
    service = await start(own_segments)
    done = await asyncio.to_thread(run, python, service.port)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[int]] = defaultdict(list)
    for record in await events(own_segments):
        if record.value.startswith(b"python "):
            number = int(record.value.split()[1])
            found[f"key {number % 10}"].append(number)
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(EVENTS))
    assert all(numbers == sorted(numbers) for numbers in found.values())
