"""The house rules that a program can check: imports, pins, addresses, versions, figures."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pins
import pytest
from headrace_common import __version__
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PARTS = [path.parent for path in pins.projects()]
PACKAGES = {
    folder.name: folder
    for part in PARTS
    for folder in part.glob("headrace_*")
    if folder.is_dir() and any(folder.glob("*.py"))
}
SERVICES = sorted(name for name, folder in PACKAGES.items() if folder.parent.parent.name == "services")
STANDARD = sys.stdlib_module_names | {"compression"}  # of Python 3.14
OUTSIDE_WORLD = {"asyncio", "aiokafka", "socket", "uvloop", "aiohttp", "ssl", "selectors", "threading", "zmq"}
FUNCTIONS_OF_BYTES = {"aiokafka.record.util"}  # CRC-32C: no connection, no loop
SELDOM = {"aiohttp", "botocore", "cryptography", "multiprocessing"}
"""What no receiver imports by default: logins by tokens, Amazon's, certificates, processes."""
LOWER = {
    "headrace_cli": PACKAGES.keys() - {"headrace_conform", "headrace_live"},
    "headrace_conform": {"headrace_cli", "headrace_forward", "headrace_lumberjack", "headrace_reader"},
    "headrace_live": {"headrace_cli", "headrace_reader"},
    "headrace_mirror": {"headrace_lake"},
    "headrace_reader": {"headrace_lake"},
}
"""What a package may import beside itself and ``headrace_common``: the command line knows all parts but those above it."""
MODULES = {
    ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in PACKAGES.values()
    for path in sorted(folder.rglob("*.py"))
}


@lru_cache
def imports(module: str) -> frozenset[str]:
    """Every module that `module` names in an import; in functions, too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            base = node.module or ""
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in MODULES)}
    return frozenset(found)


def reach(module: str) -> dict[str, str]:
    """Every module that importing `module` brings in through ours, with the one of ours that names it."""
    seen = {module: module}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for name in imports(current) - seen.keys():
            seen[name] = current
            if name in MODULES:
                waiting.append(name)
    return seen


def top(name: str) -> str:
    return name.partition(".")[0]


def room_of(module: str) -> str:
    """The room directly below the package: ``publishing`` of ``headrace_common.publishing.pump``."""
    return [*module.split("."), ""][1]


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_and_their_rooms_import_one_way(package: str) -> None:
    allowed = {package, "headrace_common", *LOWER.get(package, ())}
    arrows: dict[str, set[str]] = {}
    for module in (name for name in MODULES if top(name) == package):
        named = {name for name in imports(module) if name.startswith("headrace")}
        assert {top(name) for name in named} <= allowed, module
        own = {room_of(name) for name in named if top(name) == package and name != package}
        arrows.setdefault(room_of(module), set()).update(own - {room_of(module)})
        if package == "headrace_live":
            rooms = {room_of(name) for name in named if name.startswith("headrace_cli.")}
            assert rooms <= {"console", "ground", "operating", "options", "stack"}, module
    TopologicalSorter(arrows).prepare()  # it raises at a circle


def below(*names: str) -> list[str]:
    """Returns the modules of these names, and those in packages of these names."""
    found = [module for module in MODULES if any(module == name or module.startswith(f"{name}.") for name in names)]
    assert all(any(module.startswith(name) for module in found) for name in names), names
    return found


def test_wire_and_session_know_no_sockets_clocks_or_kafka() -> None:
    common = ("session", "record", "connection.deadlines", "listening.proxy")
    layers = ("wire", "session", "events", "client", "again")
    pure = [f"headrace_common.{name}" for name in common] + ["headrace_segment.store", "headrace_segment.appending"]
    for module in below(*pure, *(f"{service}.{layer}" for service in SERVICES for layer in layers)):
        clock = set() if module.split(".")[1] == "client" else {"time"}  # a client's events have times
        for name, by in reach(module).items():
            assert top(name) not in OUTSIDE_WORLD | clock or name in FUNCTIONS_OF_BYTES, f"{module}: {name}, by {by}"


@pytest.mark.parametrize("service", SERVICES)
def test_layers_know_only_what_lies_below(service: str) -> None:
    above = {"protocol", "__main__"}
    for layer in ("session", "events", "wire"):
        for module in below(f"{service}.{layer}"):
            assert not reach(module).keys() & {f"{service}.{name}" for name in above}, module
        above |= {layer, "settings"}


def pinned(part: str) -> set[str]:
    """Returns the names that are pinned for a part on this machine."""
    lines = [each.partition("\\")[0] for each in pins.requirements(pins.needed([part]))]
    return names_of(lines)


def names_of(requirements: Iterable[str]) -> set[str]:
    found = map(Requirement, requirements)
    return {canonicalize_name(each.name) for each in found if not each.marker or each.marker.evaluate({"extra": ""})}


def test_all_that_a_part_needs_is_pinned_and_no_more() -> None:
    """An image installs the pins of its part and asks nobody what these require."""
    declared = pins.parts()
    for part in declared:
        own = pinned(part)
        assert names_of(pins.of_others(part, declared)) <= own, f"{part}: run python release/pins.py"
        if part not in ("build", "dev", "fetch", "iceberg", "tools"):
            for name in own:
                assert names_of(importlib.metadata.requires(name) or []) <= own, f"{part}: {name}"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_declares_what_it_imports(part: Path) -> None:
    """An image holds what its part declares, and nothing else."""
    project = tomllib.loads((part / "pyproject.toml").read_text())["project"]
    extras = chain(*project.get("optional-dependencies", {}).values())
    declared = names_of(chain(project.get("dependencies", []), extras))
    known = {**importlib.metadata.packages_distributions(), "headrace_cli": ["headrace"]}
    here = {name for name, folder in PACKAGES.items() if folder.parent == part}
    for module in (name for name in MODULES if top(name) in here):
        for name in {top(name) for name in imports(module)} - STANDARD - here:
            assert {*map(canonicalize_name, known.get(name, [name]))} & declared, f"{name} (by {module})"


def test_a_receiver_imports_nothing_that_only_few_settings_need() -> None:
    """Five of them share a laptop, and each of these packages takes megabytes of each."""
    used = sorted(name for service in SERVICES for name in imports(f"{service}.protocol") if name in MODULES)
    script = f"import importlib, sys\nfor name in {used}: importlib.import_module(name)\nprint(*({SELDOM} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


REGISTRIES = """
    pypi org, pythonhosted org, maven org, maven apache org, repository apache org, npmjs org, npmjs com, registry yarnpkg com,
    docker io, hub docker com, ghcr io, gcr io, quay io, registry k8s io, proxy golang org, sum golang org, rubygems org,
    crates io"""


def test_no_file_names_a_registry() -> None:
    hosts = "|".join(r"\.".join(name.split()) for name in REGISTRIES.split(","))
    done = subprocess.run(["git", "grep", "-IliE", "--untracked", hosts], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


def test_all_parts_have_one_version() -> None:
    versions = {tomllib.loads(path.read_text())["project"]["version"] for path in pins.projects()}
    assert versions == {__version__}


def test_figures_beside_a_results_file_are_in_it() -> None:
    path = ROOT / "docs" / "performance.md"
    for item in re.split(r"\n(?=- |\| |\n)", path.read_text()):
        results = re.findall(r"\]\(((?:\.\./)+benchmarks/results/[^)]+)\)", item)
        if results:
            told = "".join((path.parent / name).read_text() for name in results)
            text = re.sub(r"\[[^]]*\]\([^)]*\)", "", item)
            figures = re.findall(r"\d[\d,]*\.?\d+", text)
            missing = [figure for figure in figures if figure not in told and figure.replace(",", "") not in told]
            assert missing == [], f"{results} has not {missing}"
