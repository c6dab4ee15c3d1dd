"""Events through a Kafka that asks who is there: from a client to the lake."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_cli.machine.tether import tethered
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receiver, variables
from tests.contract.waiting import PATIENCE, until
from tests.forward.speaking import send
from tests.lake.lander import QUICK


async def store(receiver: Receiver, mark: str) -> None:
    """Sends one event and hears that it is stored."""
    await asyncio.to_thread(send, receiver.address, mark)


def _begin(environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            tethered([sys.executable, "-m", "headrace_lake", "--once"]),
            env={**environment, **QUICK, "JAVA_HOME": str(java_home())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


@asynccontextmanager
async def landing(
    plain: KafkaSettings, kafka: Mapping[str, Any], folder: Path, mark: str, secret: str, classes: Path | None = None
) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """In the block the landing job runs with the settings `kafka`; the value waits until it says a text. Behind the block it
    has landed one event, that of `mark`, and has not said `secret`.
    """
    log = folder / "lake.log"
    lake = {"path": folder / "lake", "checkpoint": folder / "checkpoint", "jars": classes or jars("spark")}
    job = _begin(variables(plain, {"kafka": kafka, "lake": lake}), log)

    async def says(text: str) -> None:
        await until(lambda: text in log.read_text() or job.poll() is not None, text, 10 * PATIENCE)
        assert text in log.read_text()

    try:
        yield says
        await until(lambda: job.poll() is not None, "it ends", 10 * PATIENCE)
    finally:
        job.kill()
    assert job.returncode == 0, log.read_text()
    assert secret not in log.read_text()
    (row,) = query.run("select body from events", folder / "lake")
    assert json.loads(row["body"])["mark"] == mark
