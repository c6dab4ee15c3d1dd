"""Each image by itself, without rights, on a root file system that nobody can write."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest
from headrace_cli.ground import ROOT
from headrace_common import __version__
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.record import native

from tests.containers.building import NAMES, built, reference

pytestmark = pytest.mark.requires("docker", "compose")

COMPILERS = ("/usr/bin/cargo", "/usr/bin/rustc", "/usr/bin/gcc", "/opt/headrace/bin/maturin")
HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true")
"""As the compose file and the chart run every image."""
WRONG = {"lake": "HEADRACE_LAKE__TRIGGER", "tools": "HEADRACE_KAFKA__SECURITY_PROTOCOL"}


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_setting_is_one_line_and_status_78(name: str) -> None:
    built(name)
    variable = WRONG.get(name, "HEADRACE_LISTEN__PORT")
    command = ("smoke", "forward=localhost:1") if name == "tools" else ()
    status, log = run(reference(name), *command, environment={variable: "many"})
    assert (status, log.count("\n"), variable in log) == (EXIT_CONFIG, 1, True), log


@pytest.mark.parametrize("name", sorted({*NAMES} - {"lake", "tools"}))
def test_a_receivers_image_can_make_the_topics(name: str) -> None:
    """As the chart's job and compose's do."""
    built(name)
    given = {"HEADRACE_TOPICS__EVENTS_PARTITIONS": "many"}
    status, log = run(reference(name), "-m", "headrace_common.topics", entrypoint="python", environment=given)
    assert (status, "HEADRACE_TOPICS__EVENTS_PARTITIONS" in log) == (EXIT_CONFIG, True), log


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
    "tools": ("pyarrow.parquet", "pyarrow.dataset", "typer.rich_utils", "rich.prompt"),
    "lake": ("pyarrow.parquet", "cryptography.hazmat.primitives.serialization", "pyspark.worker", "pyspark.daemon"),
}
"""Modules that are loaded only when a function asks for them."""
LACKS = {"tools": {"pyspark", "py4j", "pyiceberg", "requests"}, "lake": {"deltalake", "pyiceberg", "requests"}}
"""Packages that only some modules need, whose commands are not the image's."""


@pytest.mark.parametrize("name", NAMES)
def test_every_module_loads_and_has_its_bytecode(name: str) -> None:
    """Else each start would compile it, since nobody can write into the image."""
    built(name)
    _, log = run(reference(name), "-v", "-c", LOADS, *LATER.get(name, ()), entrypoint="python")
    assert set(re.findall(r"^lacks (.+)$", log, re.MULTILINE)) <= LACKS.get(name, set())
    (loaded,) = re.findall(r"^loaded (.+)$", log, re.MULTILINE)
    assert set(loaded.split()) == {"headrace_common.topics", *LATER.get(name, ())}
    assert re.findall(r"^# code object from ([^'].*)$", log, re.MULTILINE) == []


WORKS = """
from datetime import datetime, timezone
import duckdb, pyarrow
from cryptography import x509
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

times = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in range(1, 11)]
write_deltalake("/tmp/lake", pyarrow.table({"n": list(range(10)), "text": ["a" * n for n in range(10)], "seen": times}))
connection = duckdb.connect()
connection.register("events", DeltaTable("/tmp/lake").to_pyarrow_dataset())
found = connection.sql("select n, text, seen from events where n >= 5 order by n").to_arrow_table()
parquet.write_table(found, "/tmp/rows.parquet", compression="zstd")
print(connection.sql("select count(*), max(text), max(seen)::date from '/tmp/rows.parquet'").fetchall())
print(x509.load_pem_x509_certificates.__name__)
"""


def test_the_tools_read_a_store_write_parquet_and_judge_certificates() -> None:
    """By libraries of which the image has only a part."""
    built("tools")
    status, log = run(reference("tools"), "-c", WORKS, entrypoint="python", options=("--tmpfs=/tmp",))
    assert (status, log.splitlines()) == (
        0,
        ["[(5, 'aaaaaaaaa', datetime.date(2026, 1, 10))]", "load_pem_x509_certificates"],
    )
    for command in ((), ("query",), ("quarantine", "replay")):
        status, log = run(reference("tools"), *command, "--help")
        assert (status, "Usage:" in log) == (0, True), log


def test_an_image_has_nothing_of_the_builder() -> None:
    """No secret of the build, no source beside the installed packages, no cache, no compiler."""
    built("forward")
    _, found = run(
        reference("forward"),
        *("/run/secrets", "/build", "/etc/pip.conf", "/root/.cache", "/root/.cargo", *COMPILERS),
        entrypoint="find",
        options=("--user=0",),
    )
    assert all("No such file" in line for line in found.splitlines())
    listing = "import importlib.metadata as m; print(*(f'{d.name.lower()}=={d.version}' for d in m.distributions()))"
    _, packages = run(reference("forward"), "-c", listing, entrypoint="python")
    installed = {
        re.sub(r"[._]", "-", name) + "==" + version for name, version in (p.split("==") for p in packages.split())
    }
    ours = {f"headrace-{name}=={__version__}" for name in ("common", "forward")} | {
        f"headrace-native=={native.VERSION}"
    }
    assert ours <= installed
    assert installed - ours <= set(re.findall(r"^[\w-]+==[^ ]+", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def run(
    image: str,
    *command: str,
    entrypoint: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
    options: Sequence[str] = (),
) -> tuple[int, str]:
    """Runs a container to its end, hardened as compose and chart do; its status and what it printed."""
    given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    given += ["--entrypoint", entrypoint] if entrypoint else []
    done = subprocess.run(
        ["docker", "run", "--rm", *HARDENED, *given, *options, image, *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
    )  # fmt: skip
    return done.returncode, done.stdout
