"""The health command."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from headrace_common.operations.probe import main, probe
from headrace_common.operations.variables import variable

HOST = "127.0.0.1"


class Part(http.server.BaseHTTPRequestHandler):
    """Alive, and not ready."""

    def do_GET(self) -> None:
        status, text = {"/livez": (200, b"ok\n"), "/readyz": (503, b"draining\nkafka\n")}.get(self.path, (404, b""))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer((HOST, 0), Part)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("option", "status", "text"), [([], 1, "draining\nkafka\n"), (["--live"], 0, "ok\n")])
def test_it_says_what_the_part_says(
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: list[str],
    status: int,
    text: str,
) -> None:
    monkeypatch.setenv(variable("ops", "port"), str(port))
    monkeypatch.setenv(variable("ops", "host"), "0.0.0.0")
    assert main(option) == status
    assert capsys.readouterr().out == text


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "1"]) == 1
    assert capsys.readouterr().out.startswith(f"{HOST}:1 does not answer: ")
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        good, text = probe(HOST, silent.getsockname()[1], "/readyz", timeout=0.05)
    assert (good, "does not answer" in text) == (False, True)


def test_a_port_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(variable("ops", "port"), "http")
    assert main([]) == 1
    assert "no port" in capsys.readouterr().out


def test_it_needs_python_alone() -> None:
    listing = "import sys; import headrace_common.operations.probe; print(*{n.partition('.')[0] for n in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    beside = set(loaded) - sys.stdlib_module_names - {"headrace_common", "sitecustomize", "usercustomize"}
    assert {name for name in beside if not name.startswith("_")} == set()
