"""A loop that does not turn is reported, with what every thread is doing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

STALLS = """
import asyncio, ctypes
from types import SimpleNamespace
from headrace_common.service import service
service.STALL_LIMIT, service.STALL_LOOK = 0.05, 0.001

def in_one_call():  # it holds the interpreter's lock
    ctypes.PyDLL(None).usleep(1_000_000)

async def main():
    watch = asyncio.create_task(service.Service._watch_loop(SimpleNamespace(_stalls=[])))
    await asyncio.sleep(0.01)
    in_one_call()
    await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_the_stacks_say_where_the_loop_is() -> None:
    said = subprocess.run([sys.executable, "-c", STALLS], capture_output=True, text=True, check=True, timeout=60).stderr
    assert said.startswith("Timeout (")
    assert "in in_one_call" in said


def test_where_nobody_reads_it_stops_nothing() -> None:
    read, write = os.pipe()
    os.write(write, bytes(fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)))
    subprocess.run([sys.executable, "-c", STALLS], stderr=write, check=True, timeout=60)
    os.close(read)
    os.close(write)
