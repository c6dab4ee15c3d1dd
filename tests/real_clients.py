"""Real clients' programs: built once for a session, from a copy of their sources."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

from tests.contract.waiting import PATIENCE

NPM = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")


def built(sources: Path, folder: Path, *command: str) -> Path:
    """A copy of the sources in which `command` has run."""
    copy = folder / "client"
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("node_modules", "target"))
    own = {
        name: value for name, value in os.environ.items() if name != "JAVA_HOME"
    }  # the lake's tests set it to one without javac
    done = subprocess.run(command, cwd=copy, env=own, capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


async def run(*command: object, seconds: float = 3 * PATIENCE) -> str:
    """What a client says in its whole run. It fails if the client was told of an error."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()
    return said.decode()
