"""`headrace conform`: an honest server breaks nothing, and each way of breaking the promise is found by its probe."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.wire.target import ASKED
from headrace_conform import bench
from headrace_conform.bench import Line, StorageSwitch, connected
from headrace_conform.probes import PROBES
from headrace_conform.verb import conform
from headrace_lumberjack.wire import V1, acknowledgement
from typer.testing import CliRunner

from tests.contract.waiting import PATIENCE, there
from tests.explaining import Serve, Stored, serving
from tests.real_clients import built

PROTOCOLS = sorted(ASKED)
SERVERS = Path(__file__).parent / "servers"
ROOT = Path(__file__).parents[2]
VERDICT = re.compile(r"^ {4}([a-z0-9-]+) +(kept|noted|broken)  ", re.MULTILINE)
SILENCE = 59.0
"""Seconds of listening to what should say nothing, where it is known to say something."""


def holding(hold: Path) -> dict[str, str]:
    """The commands that hold a server's storage, and let it go on."""
    return {"hold": f"touch {hold}", "release": f"rm {hold}"}


def replying(answer: bytes | None) -> Serve:
    """Says `answer` once, whatever it hears; None: it closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer or b"")
        while answer is not None and await reader.read(65_536):
            pass

    return serve


Told = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    """The exit status and the probes by name. Patience is long for what must come, and short for what must not."""

    def asked(protocol: str, target: str, **options: Any) -> tuple[int, dict[str, dict[str, Any]]]:
        given = {"wait": 60.0, "silence": 0.2, "inflated": 1, "largest": 1, "as_json": True, **options}
        status = conform(target, protocol, **given)
        return status, {probe["name"]: probe for probe in json.loads(capfd.readouterr().out)["probes"]}

    return asked


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_honest_server_breaks_nothing(protocol: str, tmp_path: Path, told: Told) -> None:
    hold = tmp_path / "hold"
    with serving(Stored(protocol, hold.exists)) as target:
        status, probes = told(protocol, target, **holding(hold))
    assert {name: probe["answer"] for name, probe in probes.items() if probe["verdict"] == "broken"} == {}
    assert status == 0
    assert not hold.exists()
    assert list(probes) == [probe.name for probe in PROBES if protocol in probe.protocols]
    if "bomb" in probes:
        assert list(probes)[-1] == "bomb", "it is blamed for no other answer"
    assert "not asked" not in {probe["verdict"] for probe in probes.values()}
    assert re.fullmatch(
        "waits without a word, and acknowledges .* after it goes on", probes["before-storage"]["answer"]
    )
    assert probes["malformed"]["answer"] == "closes; acknowledges the frame before it"
    if protocol != "relp":  # it knows no frame of several events
        assert probes["large-frame"]["answer"] == "takes 1 MiB, the bound of this run"


def test_who_acknowledges_before_storing_is_found(tmp_path: Path, told: Told) -> None:
    hold = tmp_path / "hold"
    with serving(Stored("forward")) as target:
        status, probes = told(
            "forward", target, **holding(hold), only=["before-storage", "half-closed", "gone"], silence=SILENCE
        )
    assert status == 1
    assert "acknowledges before it stores" in probes["before-storage"]["answer"]
    assert [probe["verdict"] for probe in probes.values()] == ["broken"] * 3


@pytest.mark.parametrize(
    ("probe", "said", "verdict", "sentence"),
    [
        ("before-storage", acknowledgement(V1 + 1, 0), "kept", "waits with a keep-alive after"),
        ("before-storage", acknowledgement(V1 + 1, 7), "broken", "acknowledges 7 of 100 events before it stores"),
        ("version-1", acknowledgement(V1, 0), "broken", "takes it as success"),
        ("version-1", acknowledgement(V1 + 1, 0), "broken", "takes it as success"),  # and a fault of the line
    ],
)
def test_what_is_said_before_storage_is_counted(
    probe: str, said: bytes, verdict: str, sentence: str, tmp_path: Path, told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It listens until the keep-alive has come, however long that takes."""
    hold = tmp_path / "hold"
    waits = Line.until

    async def heard(line: Line, there: Callable[[], bool], seconds: float) -> bool:
        came = lambda: there() or (seconds == SILENCE and hold.exists() and bool(line.answers[1:]))  # noqa: E731
        return await waits(line, came, seconds)

    monkeypatch.setattr(Line, "until", heard)
    with serving(Stored("lumberjack", hold.exists, said)) as target:
        status, probes = told("lumberjack", target, **holding(hold), only=[probe], silence=SILENCE)
    assert (status, probes[probe]["verdict"]) == (verdict == "broken", verdict)
    assert sentence in probes[probe]["answer"]


@pytest.mark.parametrize(
    ("probe", "answer", "sentence"),
    [
        ("acknowledges", b"2A\x00\x00\x00\x65", "of 101 events in a frame of 100"),
        ("acknowledges", b"HTTP/1.1 400", "no server may say"),
        ("half-frame", b"2A\x00\x00\x00\x0a" * 2, "of half a frame"),
        ("malformed", b"2A\x00\x00\x00\x0a" * 3, "nothing waits for one"),
        ("in-flight", b"", "acknowledges 0 of 8"),
        ("bomb", None, "; afterwards a new client hears: "),
    ],
)
def test_a_liar_is_found(
    probe: str, answer: bytes | None, sentence: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench, "connected", lambda target, client, _: connected(target, client, 60)
    )  # only answers may lack
    with serving(replying(answer)) as target:
        status, probes = told(
            "lumberjack", target, only=[probe], wait=0.5 if probe == "in-flight" else 60, silence=SILENCE
        )
    assert status == 1
    assert sentence in probes[probe]["answer"]


def test_who_serves_only_some_clients_afterwards_is_found(told: Told) -> None:
    stored = Stored("forward")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if stored.connections == 3:  # after the first that is looked for, the probe's, and one that is served
            stored.connections += 1
        else:
            await stored(reader, writer)

    with serving(serve) as target:
        status, probes = told("forward", target, only=["bomb"])
    assert status == 1
    assert "afterwards a new client hears: " in probes["bomb"]["answer"]


def test_the_storage_is_let_go_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "held").touch()

    async def interrupted() -> None:
        async with StorageSwitch("true", f"rm {tmp_path}/held").held():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    assert not (tmp_path / "held").exists()


def test_a_command_fails(tmp_path: Path) -> None:
    options = {"hold": "echo why >&2; exit 3", "release": "true", "only": ["before-storage"]}
    refused = pytest.raises(CommandError, match=r"--hold-command echo .*: it ended with 3 \(why\)")
    with serving(Stored("forward")) as target, refused as raised:
        conform(target, "forward", **options)  # type: ignore[arg-type]
    assert raised.value.status == 1


@pytest.mark.long
@pytest.mark.requires("go")
@pytest.mark.timeout(10 * PATIENCE)  # Go's own library is built too
@pytest.mark.parametrize("early", [False, True])
def test_a_server_that_is_not_ours(early: bool, tmp_path: Path, told: Told) -> None:
    """go-lumber's: as its program stores first, or acknowledges first."""
    hold = tmp_path / "hold"
    program = built(SERVERS / "golumber", tmp_path, "go", "build", "-o", "golumber", ".") / "golumber"
    command = [str(program), "-store", str(tmp_path / "store"), "-hold", str(hold), *(["-early"] if early else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        target = there(server.stdout).readline().strip()
        try:
            status, probes = told("lumberjack", target, silence=4.0, **holding(hold))
        finally:
            server.kill()
    broken = {name for name, probe in probes.items() if probe["verdict"] == "broken"}
    assert status == early
    assert broken >= {"before-storage", "version-1", "gone"} if early else broken == set()
    assert early or "keep-alive" in probes["before-storage"]["answer"]


@pytest.mark.long
def test_the_command_line(tmp_path: Path) -> None:
    with serving(Stored("courier")) as target:
        options = ("--protocol", "courier", "--inflated", "1", "--largest", "1", "--silence", "1")
        done = CliRunner().invoke(app, ["conform", target, *options])
    assert done.exit_code == 0, done.output
    assert "before-storage  not asked  needs --hold-command" in done.output
    assert done.output.endswith("probes: nothing broken\n")


def test_the_page_has_the_verdicts_of_the_outputs() -> None:
    answers = (ROOT / "benchmarks/results/conformance.md").read_text().split("\n## ")[1:]
    given = {(each.split("\n")[0].split(":")[0], *found): each for each in answers for found in VERDICT.findall(each)}
    rows = [row.strip("| \n").split(" | ") for row in (ROOT / "docs/conformance.md").read_text().splitlines()]
    servers = next(row for row in rows if row[0] == "probe")[1:]
    table = {row[0].strip("`"): row[1:] for row in rows if len(row) == 1 + len(servers) and row[0] != "probe"}
    told = {(server, probe, cell) for probe, row in table.items() for server, cell in zip(servers, row, strict=True)}
    assert {each for each in told if each[2] != "–"} == {each for each in given if each[1] in table}
    assert {verdict for _, probe, verdict in given if probe not in table} == {"kept"}
    assert {server for server, *_ in given} == set(servers)
