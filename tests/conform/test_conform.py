"""`headrace conform`: an honest server breaks nothing, and each way of breaking the promise is found by its probe."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.wire.target import ASKED
from headrace_conform import bench
from headrace_conform.bench import Line, StorageSwitch, connected
from headrace_conform.probes import PROBES
from headrace_conform.verb import conform
from headrace_lumberjack.wire import V1, acknowledgement

from tests.cli.operating.serving import Serve, serving
from tests.contract.waiting import PATIENCE, there
from tests.explaining import Receiver

PROTOCOLS = sorted(ASKED)
SERVERS = Path(__file__).parent / "servers"
SILENCE = 59.0
"""Seconds of listening to what should say nothing, where it is known to say something."""


def honest(protocol: str, hold: Path, meanwhile: bytes = b"") -> Serve:
    """A receiver's own session, which answers when nothing holds its storage. `meanwhile`: what it says while it waits."""

    def held() -> bool:
        return hold.exists()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver = Receiver(protocol)
        while not receiver.over and (data := await reader.read(65_536)):
            answer = receiver.feed(data, time.time_ns() // 1_000_000)
            if held():
                writer.write(meanwhile)
            while held() and receiver.stored:  # noqa: ASYNC110  (a command of the shell ends it)
                await asyncio.sleep(0.01)
            writer.write(answer)

    return serve


def holding(hold: Path) -> dict[str, str]:
    """The commands that hold a server's storage, and let it go on."""
    return {"hold": f"touch {hold}", "release": f"rm {hold}"}


def replying(answer: bytes) -> Serve:
    """Says `answer` once, whatever it hears."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer)
        while await reader.read(65_536):
            pass

    return serve


def told(
    capfd: pytest.CaptureFixture[str], protocol: str, target: str, **options: Any
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status and the probes by name. Patience is long for what must come, and short for what must not."""
    given = {"wait": 60.0, "silence": 0.2, "inflated": 1, "largest": 1, "as_json": True, **options}
    status = conform(target, protocol, **given)
    return status, {probe["name"]: probe for probe in json.loads(capfd.readouterr().out)["probes"]}


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_honest_server_breaks_nothing(protocol: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hold = tmp_path / "hold"
    with serving(honest(protocol, hold)) as target:
        status, probes = told(capfd, protocol, target, **holding(hold))
    assert {name: probe["answer"] for name, probe in probes.items() if probe["verdict"] == "broken"} == {}
    assert status == 0
    assert not hold.exists()
    assert list(probes) == [probe.name for probe in PROBES if protocol in probe.protocols]
    assert "not asked" not in {probe["verdict"] for probe in probes.values()}
    assert re.fullmatch(
        "waits without a word, and acknowledges .* after it goes on", probes["before-storage"]["answer"]
    )
    assert probes["malformed"]["answer"] == "closes; acknowledges the frame before it"
    assert probes["large-frame"]["answer"] == "takes 1 MiB, the bound of this run"


def test_who_acknowledges_before_storing_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hold = tmp_path / "hold"
    with serving(honest("forward", tmp_path / "another")) as target:
        status, probes = told(
            capfd, "forward", target, **holding(hold), only=["before-storage", "half-closed", "gone"], silence=SILENCE
        )
    assert status == 1
    assert "acknowledges before it stores" in probes["before-storage"]["answer"]
    assert [probe["verdict"] for probe in probes.values()] == ["broken"] * 3


def test_keep_alives_are_counted_and_break_version_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens until the keep-alive has come, however long that takes."""
    hold = tmp_path / "hold"
    waits = Line.until

    async def heard(line: Line, there: Callable[[], bool], seconds: float) -> bool:
        return await waits(
            line, lambda: there() or (seconds == SILENCE and hold.exists() and bool(line.answers[1:])), seconds
        )

    monkeypatch.setattr(Line, "until", heard)
    with serving(honest("lumberjack", hold, acknowledgement(V1 + 1, 0))) as target:
        _, probes = told(capfd, "lumberjack", target, **holding(hold), only=["before-storage"], silence=SILENCE)
    assert probes["before-storage"]["verdict"] == "kept"
    assert "waits with a keep-alive after" in probes["before-storage"]["answer"]
    for said in (acknowledgement(V1, 0), acknowledgement(V1 + 1, 0)):  # the other version's is a fault of the line, too
        with serving(honest("lumberjack", hold, said)) as target:
            status, probes = told(capfd, "lumberjack", target, **holding(hold), only=["version-1"], silence=SILENCE)
        assert status == 1
        assert "takes it as success" in probes["version-1"]["answer"]


def test_part_of_a_frame_before_it_is_stored(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hold = tmp_path / "hold"
    with serving(honest("lumberjack", hold, acknowledgement(V1 + 1, 7))) as target:
        status, probes = told(capfd, "lumberjack", target, **holding(hold), only=["before-storage"], silence=SILENCE)
    assert status == 1
    assert "acknowledges 7 of 100 events before it stores" in probes["before-storage"]["answer"]


@pytest.mark.parametrize(
    ("probe", "answer", "sentence"),
    [
        ("acknowledges", b"2A\x00\x00\x00\x65", "of 101 events in a frame of 100"),
        ("acknowledges", b"HTTP/1.1 400", "no server may say"),
        ("half-frame", b"2A\x00\x00\x00\x0a" * 2, "of half a frame"),
        ("malformed", b"2A\x00\x00\x00\x0a" * 3, "nothing waits for one"),
        ("in-flight", b"", "acknowledges 0 of 8"),
    ],
)
def test_a_liar_is_found(
    probe: str, answer: bytes, sentence: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench, "connected", lambda target, client, _: connected(target, client, 60)
    )  # only answers may lack
    with serving(replying(answer)) as target:
        status, probes = told(
            capfd, "lumberjack", target, only=[probe], wait=0.5 if probe == "in-flight" else 60, silence=SILENCE
        )
    assert status == 1
    assert sentence in probes[probe]["answer"]


def test_who_serves_nobody_after_a_bomb_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    bombed = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not bombed.is_set() and await reader.read(65_536):
            bombed.set()

    with serving(serve) as target:
        status, probes = told(capfd, "courier", target, only=["bomb"])
    assert status == 1
    assert re.search("; afterwards a new client hears: (closes|resets)", probes["bomb"]["answer"])


def test_the_bomb_is_the_last_so_that_it_is_blamed_for_no_other_answer() -> None:
    assert PROBES[-1].name == "bomb"


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
    with serving(honest("forward", tmp_path / "hold")) as target, refused as raised:
        conform(target, "forward", **options)  # type: ignore[arg-type]
    assert raised.value.status == 1


@pytest.mark.long
@pytest.mark.timeout(10 * PATIENCE)  # Go's own library is built too
def test_a_server_that_is_not_ours(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """go-lumber's: as its program stores first, or acknowledges first."""
    if shutil.which("go") is None:
        pytest.skip("needs go")
    program, hold = tmp_path / "golumber", tmp_path / "hold"
    built = subprocess.run(
        ["go", "build", "-o", program, "."],
        cwd=SERVERS / "golumber",
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
    )
    assert built.returncode == 0, built.stderr
    found = {}
    for early in (False, True):
        command = [str(program), "-store", str(tmp_path / "store"), "-hold", str(hold), *(["-early"] if early else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            target = there(server.stdout).readline().strip()
            try:
                status, probes = told(capfd, "lumberjack", target, silence=4.0, **holding(hold))
            finally:
                server.kill()
        found[early] = status, {name for name, probe in probes.items() if probe["verdict"] == "broken"}
        if not early:
            assert "keep-alive" in probes["before-storage"]["answer"]
    assert found[False] == (0, set())
    assert found[True][0] == 1
    assert {"before-storage", "version-1", "gone"} <= found[True][1]


@pytest.mark.long
def test_the_command_line(tmp_path: Path) -> None:
    with serving(honest("courier", tmp_path / "hold")) as target:
        command = [sys.executable, "-m", "headrace_cli", "conform", target, "--protocol", "courier", "--inflated", "1"]
        done = subprocess.run(
            [*command, "--largest", "1", "--silence", "1"], capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stderr
    assert "before-storage  not asked  needs --hold-command" in done.stdout
    assert done.stdout.endswith("probes: nothing broken\n")
