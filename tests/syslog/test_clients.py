"""rsyslog itself, with the configuration of the page."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_cli.machine.tether import tethered
from headrace_cli.verbs.snippet import configuration

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import HOST, Receiver
from tests.contract.topic import Stored, events, own_topics
from tests.contract.waiting import until

LINES = 1000
LOCAL = """
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log" RateLimit.Interval="0")
global(workDirectory="{folder}" localHostname="web1.example.org")
"""


@contextlib.contextmanager
def rsyslog(folder: Path, port: int) -> Iterator[None]:
    """It reads from the socket `log` of the folder, and sends to a port of this machine."""
    path = folder / "rsyslog.conf"
    path.write_text(LOCAL.format(folder=folder) + configuration("rsyslog", HOST, port))
    command = ["rsyslogd", "-n", "-f", str(path), "-i", str(folder / "pid")]
    with (folder / "rsyslog.log").open("wb") as said:
        process = subprocess.Popen(tethered(command), stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def say(folder: Path, first: int) -> None:
    """Logs `LINES` lines, all alike but for their numbers; of the numbers below 10 each is there twice."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.connect(str(folder / "log"))
        for number in range(first, first + LINES):
            for _ in range(1 + (number < 10)):
                log.send(b"<13>app[17]: line %d" % number)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.requires("rsyslog")
async def test_rsyslog_loses_and_doubles_nothing_when_the_receiver_is_killed(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = own_topics(kafka.bootstrap)
    with Receiver("relp", topics, tmp_path, module="headrace_syslog.relp") as receiver:
        await receiver.start()
        with rsyslog(tmp_path, receiver.port):
            await until((tmp_path / "log").exists, "rsyslog listens")
            say(tmp_path, 0)

            async def stored() -> list[Stored]:
                return await events(topics)

            await until(stored, "some lines are stored")
            receiver.kill()
            await asyncio.to_thread(say, tmp_path, LINES)
            await receiver.start()

            async def all_there() -> bool:
                return len({record.id for record in await stored()}) >= 2 * LINES + 10

            await until(all_there, "all lines are stored")
        found = {record.id: record.json["message"].strip() for record in await stored()}
    assert sorted(found.values()) == sorted([f"line {n}" for n in range(2 * LINES)] + [f"line {n}" for n in range(10)])
