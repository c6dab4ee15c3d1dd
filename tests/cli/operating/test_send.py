"""`headrace send`: every event reaches the receiver once, what is not acknowledged is counted, and a fault is one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.wire import connections
from headrace_cli.wire import sending as verb
from headrace_cli.wire.channel import channel_to
from headrace_cli.wire.connections import Connection, Tally
from headrace_cli.wire.sending import sent
from headrace_cli.wire.source import LINE_BYTES, EventSource, LineSource, RateSource
from headrace_cli.wire.target import CLIENTS, Target, target_of
from headrace_common.record.encoding import decode

from tests.cli.operating.serving import HOST, serving
from tests.contract.certificates import Authority
from tests.contract.waiting import PATIENCE, wait_for
from tests.explaining import Receiver

PROTOCOLS = sorted(name for name, client in CLIENTS.items() if client.malformed)


@dataclass
class Server:
    """Listens on a free port in a thread. `answers` makes what a connection says to bytes; None: it is reset."""

    answers: Callable[[], Callable[[bytes], bytes | None]]
    tls: ssl.SSLContext | None = None
    target: str = ""
    heard: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answer = self.answers()
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                self.heard.append(data)
                said = answer(data)
                if said is None:
                    break
                writer.write(said)
        writer.transport.abort()

    @property
    def port(self) -> int:
        return int(self.target.rpartition(":")[2])

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        with serving(self._serve, self.tls) as self.target:
            yield self


class Stored:
    """A receiver's own session that stores in memory."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.bodies: list[Any] = []

    def __call__(self) -> Callable[[bytes], bytes | None]:
        receiver = Receiver(self.protocol)

        def answer(data: bytes) -> bytes:
            said = receiver.feed(data, 1_700_000_000_000)
            assert not receiver.over
            assert not receiver.rejected
            self.bodies += [json.loads(decode(event)[0]) for event in receiver.stored]
            return said

        return answer


def to(protocol: str, address: str, source: EventSource, ca: str = "", **how: Any) -> int:
    """Sends as `send` does; its exit status."""
    return sent(target_of(protocol, Path("nowhere"), address, ca), source, **how)


def patient_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ANSWER_SECONDS` are for acknowledgements alone: a connection has all the time to come about."""
    real = channel_to
    monkeypatch.setattr(connections, "channel_to", lambda target, _: real(target, PATIENCE))


def silent() -> Callable[[bytes], bytes | None]:
    return lambda data: b""


def resets() -> Callable[[bytes], bytes | None]:
    return lambda data: None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_at_a_rate_arrive_once(protocol: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stored = Stored(protocol)
    with Server(stored).running() as server:
        assert to(protocol, server.target, RateSource(2000, 0.5, 400), connections=3, batch=7, as_json=True) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["sent"], told["acknowledged"], told["problems"]) == (1000, 1000, {})
    assert 0 < told["p50"] <= told["p99"]
    assert sorted(body["headrace"]["n"] for body in stored.bodies) == list(range(1000))
    assert {body["headrace"]["run"] for body in stored.bodies} == {told["run"]}
    assert server.connections == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lines_of_a_file(protocol: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'plain \xff text\r\n\n{"a": 1}\n[1]\n' + b"x" * (LINE_BYTES + 5) + b"\nlast")
    stored = Stored(protocol)
    with Server(stored).running() as server:
        assert to(protocol, server.target, LineSource(path.open("rb")), batch=2) == 0
    first, *rest = sorted(stored.bodies, key=lambda body: body["headrace"]["n"])
    assert first["message"] == "plain \ufffd text"
    assert rest[0]["a"] == 1
    assert [body["message"] for body in rest[1:]] == ["[1]", "x" * LINE_BYTES, "last"]


def test_a_line_waits_for_no_other_and_many_fill_a_frame(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(20_000)))
    stored = Stored("forward")
    with Server(stored).running() as server:
        assert to("forward", server.target, LineSource(path.open("rb")), batch=1000, connections=2, as_json=True) == 0
    assert sorted(int(body["message"]) for body in stored.bodies) == list(range(20_000))
    assert json.loads(capfd.readouterr().out)["frames"] <= 40


HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"\xff" * 300


@pytest.mark.parametrize(
    ("protocol", "answer", "sentence"),
    [
        ("forward", b"", "acknowledged nothing for 0.5 s"),
        ("forward", b"\x81\xa3ack\xa1x", "which was not sent"),
        ("courier", None, "the connection"),  # a reset, or an end, by chance
        ("courier", HTTP, "answered against the protocol"),
        ("lumberjack", HTTP, "answered against the protocol"),
    ],
)
def test_a_server_that_does_not_acknowledge(
    protocol: str,
    answer: bytes | None,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    patient_to_connect(monkeypatch)
    if answer == b"":
        monkeypatch.setattr(verb, "ANSWER_SECONDS", 0.5)
    with Server(lambda: lambda data: answer).running() as server:
        assert to(protocol, server.target, RateSource(1000, 0.1, 300)) == 1
    told = capfd.readouterr()
    assert sentence in told.err
    assert server.target in told.err
    assert "were not acknowledged" in told.err
    assert "not acknowledged" in told.out


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    context = authority.server()
    stored, ours = Stored("lumberjack"), str(authority.file)
    with Server(stored, context).running() as server:
        assert to("lumberjack", server.target, RateSource(100, 0.1, 300), ours) == 0
        assert len(stored.bodies) == 10
        with pytest.raises(CommandError, match="not trusted"):
            to("lumberjack", server.target, RateSource(10, 1, 300), "system")
    monkeypatch.setattr(verb, "ANSWER_SECONDS", 2.0)
    with Server(silent).running() as server, pytest.raises(CommandError, match=server.target):
        to("lumberjack", server.target, RateSource(10, 1, 300), ours)
    with Server(resets).running() as server, pytest.raises(CommandError, match="does not speak TLS as we do: it ends"):
        to("lumberjack", server.target, RateSource(10, 1, 300), ours)


async def test_what_is_in_flight_at_ctrl_c_is_still_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 600.0)
    stop, tally = asyncio.Event(), Tally()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer, said = Stored("forward")(), b""
        while True:
            try:
                data = await asyncio.wait_for(reader.read(65_536), 0.5)
            except TimeoutError:  # it has stopped sending
                writer.write(said)
                said = b""
                continue
            if not data:
                return
            said += answer(data) or b""
            stop.set()

    server = await asyncio.start_server(serve, HOST, 0)
    target = Target("forward", HOST, server.sockets[0].getsockname()[1])
    await Connection(target, RateSource(200, 3600, 200), tally, 1, 600).run(stop)
    server.close()
    assert tally.sent == tally.acknowledged > 0
    assert not tally.problems


@pytest.mark.parametrize("interrupted", [False, True])
def test_standard_input_is_sent_as_it_comes_until_its_end_or_ctrl_c(interrupted: bool) -> None:
    stored = Stored("courier")
    with Server(stored).running() as server:
        command = [sys.executable, "-m", "headrace_cli", "send", "courier", server.target, "--json"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, **pipes, text=True)  # type: ignore[call-overload]
        process.stdin.write("one\n")
        process.stdin.flush()
        wait_for(lambda: stored.bodies, "the first line, before the second is written")
        if interrupted:
            process.send_signal(signal.SIGINT)
            process.wait(120)
        out, err = process.communicate(None if interrupted else "two\n", timeout=120)
    told = json.loads(out)
    assert (told["sent"], process.returncode, err) == (2 - interrupted, told["sent"] - told["acknowledged"], "")
    assert [body["message"] for body in stored.bodies] == ["one", "two"][: told["sent"]]
