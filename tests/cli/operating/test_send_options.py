"""`headrace send`: Logjam's producers, compression, and how a client says who it is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from headrace_cli.ground import CommandError
from headrace_cli.stack import certificates as curve
from headrace_cli.wire.channel import opened
from headrace_cli.wire.send import verb
from headrace_cli.wire.send.source import RateSource
from headrace_cli.wire.target import CLIENTS, ClientSecurity, Login, RefusedError, compression_of, target_of, why_not
from headrace_common.session.client import Compression
from headrace_logjam.wire import BodyCompression, decode_meta

from tests.cli.operating.serving import HOST
from tests.cli.operating.test_send import Server, Stored, patient_to_connect, to
from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver as Process
from tests.contract.topic import events, own_topics

Answer = Callable[[int, list[bytes]], list[bytes] | None]


def accepts(number: int, message: list[bytes]) -> list[bytes]:
    """What a device says."""
    return [message[1], b"202 Accepted"]


@contextmanager
def device(answer: Answer, keys: curve.CurveKeys | None = None) -> Iterator[tuple[str, list[list[bytes]]]]:
    """A ROUTER in a thread, which answers messages that ask for it; with its address, and what it has heard."""
    heard: list[list[bytes]] = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            router.curve_server = True
            router.curve_secretkey = keys.server[1].read_bytes().strip()
        port = router.bind_to_random_port(f"tcp://{HOST}")
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                if router.poll(20):
                    route, *message = router.recv_multipart()
                    heard.append(message)
                    said = answer(len(heard), message) if message[0] == b"" else None
                    if said is not None:
                        router.send_multipart([route, *said])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{HOST}:{port}", heard
        finally:
            over.set()
            thread.join()


def told(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capfd.readouterr().out))


def test_logjam_is_one_message_an_event_and_202_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with device(accepts) as (address, heard):
        assert to("logjam", address, RateSource(2000, 0.1, 300), connections=2, batch=50, as_json=True) == 0
    found = told(capfd)
    assert (found["sent"], found["acknowledged"], found["frames"]) == (200, 200, 200)
    assert len(heard) == 200
    assert {decode_meta(message[-1]).compression for message in heard} == set(BodyCompression)
    assert all(message[0] == b"" and message[2] == b"logs.demo.shop" for message in heard)


@pytest.mark.parametrize(
    ("answer", "timeout", "sentence"),
    [
        (lambda number, message: [message[1], b"400 Bad Request"], 60, "400 Bad Request"),
        (lambda number, message: [message[1], b"418"], 60, "no answer of a device"),
        (
            lambda number, message: accepts(number, message) if number > 3 else None,
            60,
            "no answer to the oldest message",
        ),
        pytest.param(lambda number, message: None, 0.5, "acknowledged nothing for 0.5 s", marks=pytest.mark.long),
    ],
)
def test_what_logjam_does_not_acknowledge(
    answer: Answer,
    timeout: float,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    patient_to_connect(monkeypatch)
    monkeypatch.setattr(verb, "ANSWER_SECONDS", timeout)
    with device(answer) as (address, _):
        assert to("logjam", address, RateSource(1000, 0.02, 300)) == 1
    err = capfd.readouterr().err
    assert sentence in err
    assert "events were not acknowledged" in err


@pytest.mark.long
def test_a_server_that_is_no_zeromq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "ANSWER_SECONDS", 1.0)
    with (
        Server(lambda: lambda data: b"HTTP/1.1 400 Bad Request\r\n\r\n").running() as server,
        pytest.raises(CommandError, match=r"ends the connection|refuses us|took no"),
    ):
        to("logjam", server.target, RateSource(10, 1, 300))


def secrets(folder: Path, **given: str) -> ClientSecurity:
    path = folder / f"login-{uuid.uuid4().hex}"
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return ClientSecurity(login_file=path)


def key_files(folder: Path, keys: curve.CurveKeys) -> ClientSecurity:
    return secrets(
        folder, curve_server=keys.server[0].read_text().strip(), curve_key=keys.client[1].read_text().strip()
    )


# Compression


@pytest.mark.parametrize(
    ("text", "protocol", "found"),
    [
        ("", "forward", None),
        ("none", "forward", Compression("none")),
        ("gzip:1", "forward", Compression("gzip", 1)),
        ("gzip:9", "forward", Compression("gzip", 9)),
        ("zstd:19", "forward", Compression("zstd", 19)),
        ("zlib:0", "courier", Compression("zlib", 0)),
        ("lz4", "logjam", Compression("lz4")),
        ("gzip:0", "forward", "the level is 1 to 9"),
        ("gzip:10", "forward", "the level is 1 to 9"),
        ("zstd:20", "forward", "the level is 1 to 19"),
        ("zlib:10", "courier", "the level is 0 to 9"),
        ("zlib:x", "lumberjack", "the level is 1 to 9"),
        ("none:1", "lumberjack", "none has no levels"),
        ("lz4:1", "logjam", "lz4 has no levels"),
        ("brotli", "forward", "method brotli: it is one of none, gzip, zstd"),
        ("zlib", "segment", "compresses nothing"),
    ],
)
def test_methods_and_levels(text: str, protocol: str, found: Compression | str | None) -> None:
    if not isinstance(found, str):
        assert compression_of(text, protocol) == found
        return
    with pytest.raises(CommandError, match=found) as raised:
        compression_of(text, protocol)
    assert raised.value.status == 2


EACH = [
    (protocol, method if not levels else f"{method}:{level}")
    for protocol, client in CLIENTS.items()
    if protocol != "logjam"
    for method, levels in client.methods.items()
    for level in ((levels.start, levels.stop - 1) if levels else (0,))
]


@pytest.mark.parametrize(("protocol", "text"), EACH)
def test_our_receivers_take_each(protocol: str, text: str, tmp_path: Path) -> None:
    stored = Stored(protocol)
    with Server(stored).running() as server:
        made, method = RateSource(4000, 0.05, 300), compression_of(text, protocol)
        assert to(protocol, server.target, made, batch=40, compression=method) == 0
    assert sorted(body["headrace"]["n"] for body in stored.bodies) == list(range(200))
    sizes = sum(map(len, server.heard))
    plain = text in ("none", "zlib:0")
    assert (sizes > 200 * 200) == plain  # what is made up compresses well


@pytest.mark.parametrize("method", CLIENTS["logjam"].methods)
def test_each_method_of_logjam(method: str, tmp_path: Path) -> None:
    with device(accepts) as (address, heard):
        assert to("logjam", address, RateSource(100, 0.04, 300), compression=compression_of(method, "logjam")) == 0
    assert {BodyCompression(decode_meta(message[-1]).compression).name.lower() for message in heard} == {method}


# Who we are


@pytest.mark.parametrize(
    ("protocol", "given", "sentence"),
    [
        ("courier", {"shared_key": "k"}, "shared_key: courier has no login"),
        ("logjam", {"user": "u"}, "user: it is one of curve_server, curve_key"),
        ("forward", {"curve_key": "k"}, "curve_key: it is one of shared_key, user, password"),
        ("forward", {"user": "u", "shared_key": "k"}, "user needs password"),
        ("forward", {"password": "p", "shared_key": "k"}, "password needs user"),
        ("forward", {"user": "u", "password": "p"}, "user needs shared_key"),
        ("forward", {"shared_key": ""}, "lines of NAME=VALUE"),
        ("logjam", {"curve_server": "k"}, "curve_server needs curve_key"),
        ("logjam", {"curve_key": "k"}, "curve_key needs curve_server"),
        ("logjam", {"curve_server": "k", "curve_key": "k"}, "no CURVE key"),
    ],
)
def test_secrets_that_make_no_sense_are_one_sentence(
    protocol: str, given: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    security = secrets(tmp_path, **given)
    with pytest.raises(CommandError, match=sentence) as raised:
        to(protocol, "h:1", RateSource(1, 1, 300), security)
    assert raised.value.status == 2


def test_secrets_may_come_through_a_pipe() -> None:
    """As of ``--login <(decrypt …)``, which can be read only once."""
    reading, writing = os.pipe()
    os.write(writing, b"shared_key=k\nuser=web\npassword=p\n")
    os.close(writing)
    security = ClientSecurity(login_file=Path(f"/dev/fd/{reading}"))
    security.check("forward")
    login = security.login()
    os.close(reading)
    assert login == Login("k", "web", "p")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not ask for a login as Forward does|its answer is not a HELO"),
        (None, "closes the connection at the login|reset"),
    ],
)
async def test_a_server_that_does_not_log_us_in(answer: bytes | None, sentence: str, tmp_path: Path) -> None:
    async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is not None:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(said, HOST, 0)
    security = secrets(tmp_path, shared_key="secret")
    target = target_of("forward", tmp_path, f"{HOST}:{server.sockets[0].getsockname()[1]}", security)
    with pytest.raises(RefusedError) as raised:
        await opened(target, 30)
    assert re.search(sentence, why_not(target, raised.value, 30))
    server.close()


async def cli(*options: object) -> tuple[int | None, str]:
    """`headrace send` in a process of its own; its exit status, and what it says on standard error."""
    command = [sys.executable, "-m", "headrace_cli", "send", *map(str, options)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, err = await process.communicate()
    return process.returncode, err.decode()


@pytest.mark.kafka
@pytest.mark.long
async def test_a_real_forward_receiver_with_login_and_client_certificates(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    own, own_key = authority.issue("web-1", "web-1")
    settings = own_topics(kafka.bootstrap)
    receiver = Process(
        "forward",
        settings,
        tmp_path,
        {
            "forward": {"shared_key": "the key", "users": json.dumps({"web": "the password"})},
            "tls": {"cert": cert, "key": key, "client_ca": authority.file},
        },
    )
    await receiver.start()
    try:
        own.write_bytes(own.read_bytes() + own_key.read_bytes())
        target = ("forward", f"{HOST}:{receiver.port}", "--rate", 200, "--for", "1s")
        trust = ("--ca", authority.file)
        ours = (*trust, "--cert", own)

        def login(key: str, password: str) -> tuple[object, ...]:
            return "--login", secrets(tmp_path, shared_key=key, user="web", password=password).login_file

        right = login("the key", "the password")
        for more in ("zstd:19", "gzip:9", "none"):
            assert await cli(*target, *ours, *right, "--compression", more) == (0, "")
        for changed, sentence in (
            (login("another", "the password"), "refuses the login: shared_key mismatch"),
            (login("the key", "another"), "refuses the login: username/password mismatch"),
            ((), "asks for a login"),
        ):
            status, err = await cli(*target, *ours, *changed)
            assert (status, sentence in err) == (1, True), err
        assert (await cli(*target, *trust, *right))[0] == 1
    finally:
        receiver.stop()
    stored = [each for each in await events(settings) if "headrace" in each.json]
    assert len({each.id for each in stored}) == 600
    assert "web-1" in stored[0]["ce_source"]


@pytest.mark.kafka
@pytest.mark.long
async def test_a_real_logjam_receiver_with_curve(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    keys, _ = curve.ensure_curve(tmp_path / "keys"), curve.ensure_curve(tmp_path / "others")
    settings = own_topics(kafka.bootstrap)
    section = {
        "pull_port": 0,
        "curve_secret_key": keys.server[1].read_text().strip(),
        "curve_clients": json.dumps({"shop": keys.client[0].read_text().strip()}),
    }
    receiver = Process("logjam", settings, tmp_path, {"logjam": section})
    await receiver.start()
    try:
        target = ("logjam", f"{HOST}:{receiver.port}", "--rate", 500, "--for", "1s")
        assert await cli(*target, "--login", key_files(tmp_path, keys).login_file) == (0, "")
        mixed = curve.CurveKeys(tmp_path / "others")
        mixed.server[0].write_bytes(keys.server[0].read_bytes())
        status, err = await cli(*target, "--login", key_files(tmp_path, mixed).login_file)
        assert (status, "refuses our CURVE keys" in err) == (1, True), err
    finally:
        receiver.stop()
    stored = [each for each in await events(settings) if "headrace" in each.json]
    assert len({each.id for each in stored}) == 500
    assert {each["ce_source"] for each in stored} == {"/logjam/shop"}
