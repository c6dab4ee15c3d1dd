"""Logs: a peer cannot fill a disk."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from subprocess import PIPE
from typing import Any

from headrace_common.operations.log import BURST, REPEAT_TIME, Repeats

from tests.contract.waiting import there

SCRIPT = (
    "import sys; from headrace_common.operations.log import configure; "
    "from headrace_common.operations.settings import LogSettings; "
    "log = configure(LogSettings(), 'courier')\n"
)


def test_what_repeats_is_said_once_in_a_while() -> None:
    """Bugs are counted apart: a client that has found one shows it with each frame, and each line has a stack."""
    now = 100.0
    repeats = Repeats(lambda: now)

    def says(name: str, text: str, *values: object) -> bool:
        return repeats.filter(logging.LogRecord(name, logging.ERROR, "", 1, text, values, None))

    def told(level: int, event: str) -> int | None:
        said: dict[str, Any] = {"event": event}
        record = logging.makeLogRecord({"msg": said, "levelno": level, "name": "headrace"})
        return said.get("suppressed", 0) if repeats.filter(record) else None

    kinds = ((logging.WARNING, "a"), (logging.ERROR, "b"))
    found = [told(*kind) for _ in range(100) for kind in kinds]
    assert found == 2 * BURST * [0] + 2 * (100 - BURST) * [None]
    assert [told(logging.INFO, "c") for _ in range(100)] == 100 * [0]
    assert [says("aiokafka.client", "no connection to %s", each) for each in range(100)].count(True) == BURST
    assert says("aiokafka.client", "another")
    assert [says("asyncio", f"Task exception was never retrieved\nfuture: {each}") for each in range(100)].count(
        True
    ) == BURST
    now += REPEAT_TIME
    assert says("aiokafka.client", "no connection to %s", 1)
    assert [told(logging.WARNING, "a") for _ in range(2)] == [100 - BURST, 0]


def test_lines_are_limited_and_cannot_steer_a_terminal() -> None:
    script = SCRIPT + (
        "import logging; logging.getLogger('aiokafka').error('lost')\n"
        "for number in range(1000): log.warning('said', number=number, peer='a\\x1b]0;b\\x07\\x9b2J')"
    )
    done = subprocess.run([sys.executable, "-c", script], stderr=PIPE, text=True, check=True)
    first, *others = map(json.loads, lines := done.stderr.splitlines())
    assert (first["service"], first["event"]) == ("courier", "lost")
    assert [line["number"] for line in others] == list(range(BURST))
    assert all(line.isprintable() and line.isascii() for line in lines)


def test_a_log_that_nobody_reads_stops_nothing_else() -> None:
    """A terminal that was stopped, or a collector that hangs: the event loop waited for it, with all clients."""
    script = SCRIPT + (
        "for number in range(1000): log.info('said', number=number, stack='x' * 10_000)\n"
        "print('served', flush=True); sys.stdin.readline(); log.warning('last')"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=PIPE, stdout=PIPE, stderr=PIPE, bufsize=0) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"served\n"
        os.set_blocking(process.stderr.fileno(), False)
        before = b"".join(iter(lambda: there(process.stderr).read(), None))
        os.set_blocking(process.stderr.fileno(), True)
        process.stdin.write(b"\n")
        last = json.loads(process.stderr.read().split(b"\n")[-2])
    whole = [json.loads(line)["number"] for line in before.split(b"\n")[:-1]]
    assert whole == list(range(len(whole)))
    assert len(whole) < 1000
    assert last["event"] == "last"
