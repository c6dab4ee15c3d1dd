"""Each image by itself: without rights, on a root file system that nobody can write, ready and acknowledging."""

from __future__ import annotations

import re
from typing import Any

import docker
import pytest
from headrace_cli.ground import ROOT
from headrace_common import __version__
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.record import native

from tests.containers.building import NAMES, built, reference
from tests.containers.running import HARDENED, Contained
from tests.contract.dialect import ContractClient, Dialect, values
from tests.contract.topic import events

pytestmark = pytest.mark.requires("docker", "compose")

COMPILERS = ("/usr/bin/cargo", "/usr/bin/rustc", "/usr/bin/gcc", "/opt/headrace/bin/maturin")
RUNNING = ("from pathlib import Path; print(Path('/proc/1/status').read_text()); Path('/opt/headrace/new').touch()",)


@pytest.mark.kafka
async def test_a_receiver_needs_no_rights_is_ready_and_acknowledges(dialect: Dialect, receiver: Contained) -> None:
    await receiver.listens()
    assert await receiver.ready()
    assert await receiver.metric("build_info", native="on") == 1
    check = receiver.container.attrs["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    assert receiver.container.exec_run(check[1:]).exit_code == 0
    told = receiver.container.exec_run(["python", "-c", *RUNNING]).output.decode()
    status = dict(line.partition(":")[::2] for line in told.splitlines() if ":" in line)
    assert status["Uid"].split() == ["10001"] * 4
    assert status["Gid"].split() == ["10001"] * 4
    assert int(status["CapEff"], 16) == 0
    assert "Read-only file system" in told
    frame = values(20)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        await client.receives(await client.send(frame))
    assert len(await events(receiver.kafka, frame[0]["mark"])) == len(frame)


WRONG = {"lake": "HEADRACE_LAKE__TRIGGER", "tools": "HEADRACE_KAFKA__SECURITY_PROTOCOL"}


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_setting_is_one_line_and_status_78(name: str, client: docker.DockerClient) -> None:
    built(name)
    variable = WRONG.get(name, "HEADRACE_LISTEN__PORT")
    command = {"command": ["smoke", "forward=localhost:1"]} if name == "tools" else {}
    status, log = run(client, reference(name), environment={variable: "many"}, **command)
    assert status == EXIT_CONFIG
    (line,) = log.splitlines()
    assert variable in line


LOADS = """
import importlib, pkgutil, sys
tops = [each.name for each in pkgutil.iter_modules() if each.name.startswith("headrace_")]
names = [each.name for top in tops for each in pkgutil.walk_packages(importlib.import_module(top).__path__, top + ".")]
for name in [*names, *sys.argv[1:]]:
    try:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        print("lacks", error.name.partition(".")[0])
print("loaded", *{"headrace_common.topics", *sys.argv[1:]} & sys.modules.keys(), file=sys.stderr)
"""
"""Loads every module of ours, and those that it is told."""
LATER = {
    "tools": ("pyarrow.parquet", "pyarrow.dataset"),
    "lake": ("pyarrow.parquet", "cryptography.hazmat.primitives.serialization", "pyspark.worker", "pyspark.daemon"),
}
"""Modules that are loaded only when a function asks for them."""
LACKS = {"tools": {"pyspark", "py4j", "pyiceberg", "requests"}, "lake": {"deltalake", "pyiceberg", "requests"}}
"""Packages that only some modules need, whose commands are not the image's."""


@pytest.mark.parametrize("name", NAMES)
def test_every_module_loads_and_has_its_bytecode(name: str, client: docker.DockerClient) -> None:
    """Else each start would compile it, since nobody can write into the image."""
    built(name)
    _, log = run(client, reference(name), entrypoint=["python", "-v", "-c", LOADS, *LATER.get(name, ())])
    assert set(re.findall(r"^lacks (.+)$", log, re.MULTILINE)) <= LACKS.get(name, set())
    (loaded,) = re.findall(r"^loaded (.+)$", log, re.MULTILINE)
    assert set(loaded.split()) == {"headrace_common.topics", *LATER.get(name, ())}
    assert re.findall(r"^# code object from ([^'].*)$", log, re.MULTILINE) == []


WORKS = """
from datetime import datetime, timezone
import duckdb, pyarrow
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

times = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in range(1, 11)]
write_deltalake("/tmp/lake", pyarrow.table({"n": list(range(10)), "text": ["a" * n for n in range(10)], "seen": times}))
connection = duckdb.connect()
connection.register("events", DeltaTable("/tmp/lake").to_pyarrow_dataset())
found = connection.sql("select n, text, seen from events where n >= 5 order by n").to_arrow_table()
parquet.write_table(found, "/tmp/rows.parquet", compression="zstd")
print(connection.sql("select count(*), max(text), max(seen)::date from '/tmp/rows.parquet'").fetchall())
"""


def test_the_tools_read_a_store_and_write_parquet(client: docker.DockerClient) -> None:
    """By libraries of which the image has only a part."""
    built("tools")
    status, log = run(client, reference("tools"), entrypoint=["python", "-c", WORKS], tmpfs={"/tmp": ""})
    assert (status, log.splitlines()) == (0, ["[(5, 'aaaaaaaaa', datetime.date(2026, 1, 10))]"])
    for command in ((), ("query",), ("quarantine", "replay")):
        status, log = run(client, reference("tools"), command=[*command, "--help"])
        assert (status, "Usage:" in log) == (0, True), log


def test_an_image_has_nothing_of_the_builder(client: docker.DockerClient) -> None:
    """No secret of the build, no source beside the installed packages, no cache, no compiler."""
    built("forward")
    _, found = run(
        client,
        reference("forward"),
        user="0",
        entrypoint=["find", "/run/secrets", "/build", "/etc/pip.conf", "/root/.cache", "/root/.cargo", *COMPILERS],
    )
    assert all("No such file" in line for line in found.splitlines())
    listing = "import importlib.metadata as m; print(*(f'{d.name.lower()}=={d.version}' for d in m.distributions()))"
    _, packages = run(client, reference("forward"), entrypoint=["python", "-c", listing])
    installed = {
        re.sub(r"[._]", "-", name) + "==" + version for name, version in (p.split("==") for p in packages.split())
    }
    ours = {f"headrace-{name}=={__version__}" for name in ("common", "forward")} | {
        f"headrace-native=={native.VERSION}"
    }
    assert ours <= installed
    assert installed - ours <= set(re.findall(r"^[\w-]+==[^ ]+", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def run(client: docker.DockerClient, image: str, **options: Any) -> tuple[int, str]:
    """Runs a container to its end, hardened; its status and what it printed."""
    container = client.containers.run(image, detach=True, **{**HARDENED, **options})
    try:
        status = container.wait()["StatusCode"]
        return status, container.logs().decode(errors="replace")
    finally:
        container.remove(force=True)
