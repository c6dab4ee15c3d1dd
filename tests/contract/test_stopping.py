"""What the suite itself relies on."""

from __future__ import annotations

import subprocess
import sys

from tests.contract.stopping import states, stopped

BUSY = """
import threading, time
def work():
    while True:
        sum(range(1000))
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print(flush=True)
time.sleep(600)
"""


def test_a_stopped_process_stands_still() -> None:
    """At once and with all its threads: what a broker still stores while a test believes it stopped looks like an early
    acknowledgement.
    """
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(30):
                with stopped(process.pid):
                    assert states(process.pid) == {"T"}
        finally:
            process.kill()
