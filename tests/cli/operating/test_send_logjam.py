"""`headrace send` to Logjam: as its producers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from headrace_cli.wire import sending as verb
from headrace_cli.wire.source import RateSource
from headrace_logjam.wire import BodyCompression, decode_meta

from tests.cli.operating.serving import HOST
from tests.cli.operating.test_send import patient_to_connect, to

Answer = Callable[[int, list[bytes]], list[bytes] | None]


def accepts(number: int, message: list[bytes]) -> list[bytes]:
    """What a device says."""
    return [message[1], b"202 Accepted"]


@contextmanager
def device(answer: Answer) -> Iterator[tuple[str, list[list[bytes]]]]:
    """A ROUTER in a thread, which answers messages that ask for it; with its address, and what it has heard."""
    heard: list[list[bytes]] = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
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
