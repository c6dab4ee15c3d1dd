"""rsyslog, with the configuration of the page and without RELP, syslog-ng and logger, plain and over TLS."""

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

from tests.contract.certificates import Authority
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


LOGGER = (("--tcp",), ("--tcp", "--octet-count"), ("--udp",))
OMFWD = ('protocol="tcp"', 'protocol="tcp" tcp_framing="octet-counted"', 'protocol="udp"')
OMFWD_TLS = """streamDriverMode="1" streamDriverAuthMode="x509/name" streamDriverPermittedPeers="localhost"
    protocol="tcp" tcp_framing="octet-counted" streamDriver="""
SYSLOG_NG = """
@version: 3.35
log {{
    source {{ unix-dgram("{folder}/log"); }};
    destination {{ network("localhost" port({port}) persist-name("lines") transport("tls") tls(ca-file("{ca}"))); }};
    destination {{ syslog("localhost" port({port}) transport("tls") tls(ca-file("{ca}"))); }};
}};
"""
COMMANDS = {
    "rsyslog": "rsyslogd -n -f {0}/conf -i {0}/pid",
    "syslog-ng": "syslog-ng -F --no-caps -f {0}/conf -R {0}/persist -p {0}/pid -c {0}/control",
}


@contextlib.contextmanager
def running(folder: Path, configuration: str, client: str = "rsyslog") -> Iterator[None]:
    """It reads from the socket `log` of the folder."""
    (folder / "conf").write_text(configuration)
    with (folder / "client.log").open("wb") as said:
        process = subprocess.Popen(tethered(COMMANDS[client].format(folder).split()), stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def rsyslog(folder: Path, actions: str) -> contextlib.AbstractContextManager[None]:
    return running(folder, LOCAL.format(folder=folder) + actions)


def say(folder: Path, first: int, count: int = LINES) -> None:
    """Logs lines that are all alike but for their numbers; of the numbers below 10 each is there twice."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.connect(str(folder / "log"))
        for number in range(first, first + count):
            for _ in range(1 + (number < 10)):
                log.send(b"<13>app[17]: line %d" % number)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.requires("rsyslog")
async def test_rsyslog_loses_and_doubles_nothing_when_the_receiver_is_killed(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = own_topics(kafka.bootstrap)
    with Receiver("relp", topics, tmp_path) as receiver:
        await receiver.start()
        with rsyslog(tmp_path, configuration("rsyslog", HOST, receiver.port)):
            await until((tmp_path / "log").exists, "rsyslog listens")
            say(tmp_path, 0)

            async def stored() -> list[Stored]:
                return await events(topics)

            await until(stored, "some lines are stored")
            receiver.kill()
            await asyncio.to_thread(say, tmp_path, LINES, 2 * LINES)  # more than a queue of rsyslog's usual length
            await receiver.start()

            async def all_there() -> bool:
                return len({record.id for record in await stored()}) >= 3 * LINES + 10

            await until(all_there, "all lines are stored")
        found = {record.id: record.json["message"].strip() for record in await stored()}
    assert sorted(found.values()) == sorted([f"line {n}" for n in range(3 * LINES)] + [f"line {n}" for n in range(10)])


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.requires("rsyslog")
async def test_logger_and_rsyslog_are_understood_over_tcp_and_udp(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = own_topics(kafka.bootstrap)
    with Receiver("syslog", topics, tmp_path) as receiver:
        await receiver.start()
        for options in LOGGER:
            command = ["logger", "--server", HOST, "--port", str(receiver.port), "--tag", "app", *options, "line 10"]
            await asyncio.to_thread(subprocess.run, command, check=True)
        actions = [f'action(type="omfwd" target="{HOST}" port="{receiver.port}" {each})' for each in OMFWD]
        with rsyslog(tmp_path, "\n".join(actions)):
            await until((tmp_path / "log").exists, "rsyslog listens")
            say(tmp_path, 11, 1)

            async def all_there() -> bool:
                return len(await events(topics)) == len(LOGGER) + len(OMFWD)

            await until(all_there, "all lines are stored")
        found = [(record.json["app_name"], record.json["message"]) for record in await events(topics)]
    assert sorted(found) == [("app", "line 10")] * len(LOGGER) + [("app", "line 11")] * len(OMFWD)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=pytest.mark.requires(name)) for name in ("rsyslog", "syslog-ng")]
)
async def test_clients_are_understood_over_tls(kafka: EmbeddedKafka, tmp_path: Path, client: str) -> None:
    topics, authority = own_topics(kafka.bootstrap), Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    secured = {"tls": {"cert": cert, "key": key}}
    with Receiver("syslog", topics, tmp_path, secured) as syslog, Receiver("relp", topics, tmp_path, secured) as relp:
        await syslog.start()
        await relp.start()
        ca, to = authority.file, f'action(type="omfwd" target="localhost" port="{syslog.port}"'
        page = configuration("rsyslog", "localhost", relp.port, str(ca))
        own = page.replace("/etc/headrace/client.pem", str(cert)).replace("/etc/headrace/client.key", str(key))
        plain = [f'{to} {OMFWD_TLS}"{driver}")' for driver in ("gtls", "ossl")]
        sending = rsyslog(tmp_path, "\n".join([f'global(DefaultNetstreamDriverCAFile="{ca}")', own, *plain]))
        wanted = [("relp", "line 10"), ("syslog", "line 10"), ("syslog", "line 10")]
        if client == "syslog-ng":
            told, wanted = SYSLOG_NG.format(folder=tmp_path, port=syslog.port, ca=ca), wanted[1:]
            sending = running(tmp_path, told, client)
        with sending:
            await until((tmp_path / "log").exists, "the client listens")
            say(tmp_path, 10, 1)

            async def all_there() -> bool:
                return len(await events(topics)) >= len(wanted)

            await until(all_there, "all lines are stored")
        found = [(record["ce_source"].split("/")[1], record.json["message"].strip()) for record in await events(topics)]
    assert sorted(found) == wanted
