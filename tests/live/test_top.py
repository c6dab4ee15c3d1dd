"""`headrace top`: what two looks at metrics say, and a table of it."""

from __future__ import annotations

import http.server
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from headrace_cli.operating.exposition import Scrape, scrape_all
from headrace_cli.verbs.console import duration
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.protocol import installed
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_live.looks import Look
from headrace_live.model import quantile
from headrace_live.top import PROBLEMS, rows, table, top
from headrace_live.words import short
from rich.console import Console

from tests.live.seen import INF, lake, look, receiver
from tests.live.test_model import last


class TestRates:
    @pytest.mark.parametrize(
        ("buckets", "share", "value"),
        [
            ({1.0: 0, 2.0: 10, INF: 10}, 0.5, 1.5),
            ({1.0: 10, INF: 10}, 0.5, 0.5),
            ({1.0: 5, 2.0: 5, INF: 10}, 0.99, 2.0),
            ({1.0: 0, INF: 0}, 0.5, None),
            ({}, 0.5, None),
        ],
    )
    def test_quantiles(self, buckets: dict[float, float], share: float, value: float | None) -> None:
        assert quantile(buckets, share) == value

    def test_the_lake_has_its_own_figures(self) -> None:
        (row,) = rows(last(look(0, lake(0, 10, lag=7))))
        assert (row["lag"], row["freshness_p50"], row["freshness_p95"], row["connections"]) == (7, 1.5, 2.5, None)

    def test_a_lag_that_the_job_does_not_know_is_not_shown_as_0(self) -> None:
        (row,) = rows(last(look(0, Scrape("lake", "u", 0, True, (), {"headrace_lake_records_total": {(): 10.0}}))))
        assert row["lag"] is None

    def test_every_metric_that_it_reads_exists(self) -> None:
        declared = {row.name for metrics in (ReceiverMetrics(), LakeMetrics()) for row in metrics.table()}
        declared |= {row.name for protocol in installed() for row in protocol.own_metrics()}
        read = set()
        root = Path(__file__).parents[2]
        for path in [*(root / "live").rglob("*.py"), root / "cli/headrace_cli/wire/loss.py"]:
            read |= {
                word for word in path.read_text().split('"') if word.startswith("headrace_") and word.isidentifier()
            }
        read = {name for name in read if not name.startswith(("headrace_cli", "headrace_live"))}
        assert len(read) > 8
        assert read - declared == set()


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "–"), (0, "0"), (999, "999"), (1_000, "1.0k"), (12_345, "12.3k"), (5e8, "500M"), (1e13, "10T")],
)
def test_short_numbers(number: float | None, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.0001, "1 ms"),
        (0.045, "45 ms"),
        (1.25, "1.2 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7200, "2 h"),
    ],
)
def test_short_times(number: float | None, text: str) -> None:
    assert duration(number) == text


def shown(width: int, *looks: Look) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table(rows(last(*looks)), width))
    return captured.get()


def test_problems_stand_below_the_table() -> None:
    many = [Scrape("forward", f"http://h:{n}", 0, problem="does not answer") for n in range(PROBLEMS + 2)]
    text = shown(80, look(0, *many))
    assert f"0/{PROBLEMS + 2}" in text
    assert "… and 2 more" in text


@pytest.mark.parametrize(("width", "left"), [(80, 0), (60, 2), (45, 5)])
def test_a_narrow_terminal_shows_fewer_columns_and_each_of_them_whole(width: int, left: int) -> None:
    busy = receiver(
        1, 123_456, service="lumberjack", headrace_budget_used_bytes=123_456_789, headrace_oldest_pending_seconds=99
    )
    lines = shown(width, look(0, receiver(0, service="lumberjack")), look(1, busy)).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "…" not in lines[0] + lines[1]
    assert 12 - len(lines[0].split()) == left
    assert ("left out" in lines[-1]) == bool(left)
    assert {"service", "ready", "ev/s"} <= set(lines[0].split())


class _Part(http.server.BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, str]]] = {}

    def do_GET(self) -> None:
        status, text = self.answers.get(self.path, (404, ""))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def part() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """A part's address, and what it answers."""
    metrics = ReceiverMetrics()
    metrics.connections.set(5)
    answers = {
        "/": (200, "<!doctype html><title>courier</title>"),
        "/metrics": (200, "# more than arrives at once\n" * 40_000 + metrics.exposition().decode()),
        "/readyz": (200, "ok\n"),
    }
    handler = type("Part", (_Part,), {"answers": answers})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()


def test_a_part_says_its_name_no_proxy_stands_between_and_no_address_is_a_traceback(
    part: tuple[str, dict[str, tuple[int, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    found, nowhere = scrape_all([("", part[0]), ("courier", f"{part[0]}/p\u00e4d")])
    assert nowhere.problem
    assert (found.service, found.ready, found.total("headrace_connections")) == ("courier", True, 5)


@pytest.mark.parametrize(
    ("answers", "status", "problem"),
    [
        ({}, 0, ""),
        ({"/readyz": (503, "kafka is away\n")}, 1, "kafka is away"),
        ({"/metrics": (500, "")}, 1, "/metrics answers 500"),
        ({"/metrics": (200, "a b c d")}, 1, "/metrics cannot be read"),
        ({"/metrics": (200, "other 1\n")}, 0, ""),
    ],
)
def test_once(
    part: tuple[str, dict[str, tuple[int, str]]],
    capsys: pytest.CaptureFixture[str],
    answers: dict[str, tuple[int, str]],
    status: int,
    problem: str,
) -> None:
    part[1].update(answers)
    assert top(Path("x"), [part[0]], once=True, as_json=True, every=1) == status
    (row,) = json.loads(capsys.readouterr().out)
    assert row["service"] == "courier"
    assert problem in "".join(row["problems"])
    assert bool(problem) is bool(row["problems"])


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert top(Path("x"), ["a=127.0.0.1:1"], once=True, as_json=False, every=1) == 1
    assert "a: does not answer" in capsys.readouterr().out


def test_live_on_a_terminal_until_ctrl_c(part: tuple[str, dict[str, tuple[int, str]]]) -> None:
    main, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli", "top", "--url", part[0]],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm", "COLUMNS": "80"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while b"Ctrl-C ends" not in seen:
        seen += os.read(main, 4096)
    assert b"courier" in seen
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    os.close(main)
