"""The health command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_common.operations import probe
from headrace_common.operations.health import OpsServer
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import OpsSettings
from headrace_common.operations.variables import variable


@pytest.mark.parametrize(
    ("problems", "status", "text"), [([], 0, "ok\nslow\n"), (["draining", "kafka"], 1, "draining\nkafka\nslow\n")]
)
async def test_it_says_what_the_part_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], problems: list[str], status: int, text: str
) -> None:
    part: Any = SimpleNamespace(ready_problems=lambda: problems, notes=lambda: ["slow"])
    server = OpsServer(OpsSettings(host="::", port=0), part, ReceiverMetrics())
    await server.start()
    monkeypatch.setenv(variable("ops", "port"), str(server.port))
    monkeypatch.setenv(variable("ops", "host"), "::")
    assert await asyncio.to_thread(probe.main) == status
    assert capsys.readouterr().out == text
    await server.stop()


@pytest.mark.parametrize("port", ["1", "http"])
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: str) -> None:
    monkeypatch.setenv(variable("ops", "port"), port)
    assert probe.main() == 1
    assert capsys.readouterr().out.startswith("no answer: ")


def test_it_needs_python_alone() -> None:
    listing = "import sys; import headrace_common.operations.probe; print(*{n.partition('.')[0] for n in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    beside = set(loaded) - sys.stdlib_module_names - {"headrace_common", "sitecustomize", "usercustomize"}
    assert {name for name in beside if not name.startswith("_")} == set()
