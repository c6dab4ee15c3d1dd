"""The house rules that a program can check: imports, sizes, pins, addresses."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PARTS = sorted(path.parent for pattern in ("*", "*/*") for path in ROOT.glob(f"{pattern}/pyproject.toml"))
PACKAGES = {
    folder.name: folder
    for part in PARTS
    for folder in part.glob("headrace_*")
    if folder.is_dir() and any(folder.glob("*.py"))
}
SERVICES = sorted(name for name, folder in PACKAGES.items() if folder.parent.parent.name == "services")
STANDARD = sys.stdlib_module_names | {"compression"}  # of Python 3.14
OUTSIDE_WORLD = {"asyncio", "aiokafka", "socket", "uvloop", "aiohttp", "ssl", "selectors", "threading", "zmq"}
LAYERS = ("wire", "session", "events", "client", "again")
FUNCTIONS_OF_BYTES = {"aiokafka.record.util"}  # CRC-32C: no connection, no loop
SELDOM = {"aiohttp", "botocore", "cryptography", "multiprocessing"}
"""What no receiver imports by default: logins by tokens, Amazon's, certificates, processes."""
PINS = ROOT / "release" / "pins.py"
LINES = 400
USUAL = {"__init__", "__main__", "protocol", "client", "receiver", "again"}
"""What packages have by rule, so it tells nothing of one: what runs it, what it is to Headrace, its client, the front door."""


def modules() -> Iterator[tuple[str, Path]]:
    for folder in PACKAGES.values():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


@lru_cache
def imports(module: str, *, at_once: bool = False) -> frozenset[str]:
    """Every module that `module` names in an import; in functions too, unless it is what importing `module` imports at once."""
    found = set()
    for node in nodes(ast.parse(MODULES[module].read_text()), functions=not at_once):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            base = node.module or ""
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in MODULES)}
    return frozenset(found)


def nodes(node: ast.AST, *, functions: bool) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from nodes(child, functions=functions)


def reach(module: str) -> dict[str, str]:
    """Every module that importing `module` brings in through ours, with the one of ours that names it."""
    seen = {module: module}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for name in imports(current):
            if name not in seen:
                seen[name] = current
                if name in MODULES:
                    waiting.append(name)
    return seen


def top(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_one_way(module: str) -> None:
    """The command line knows all parts but the one above it, which knows its library and none of its verbs that speak."""
    package = top(module)
    above = {
        "headrace_cli": PACKAGES.keys() - {"headrace_conform", "headrace_live"},
        "headrace_conform": {"headrace_cli", "headrace_forward", "headrace_lumberjack", "headrace_reader"},
        "headrace_live": {"headrace_cli", "headrace_reader"},
        "headrace_mirror": {"headrace_lake"},
        "headrace_reader": {"headrace_lake"},
    }
    allowed = {package, "headrace_common", *above.get(package, ())}
    named = {name for name in imports(module) if name.startswith("headrace")}
    assert {top(name) for name in named} <= allowed
    if package == "headrace_live":
        rooms = {room_of(name) for name in named if name.startswith("headrace_cli.")}
        assert rooms <= {"console", "ground", "operating", "options", "stack"}


def as_named(value: str | Path) -> str:
    """Returns a test's id: a file's path in the repository."""
    return value if isinstance(value, str) else str(value.relative_to(ROOT))


def room_of(module: str) -> str:
    """The room directly below the package: ``publishing`` of ``headrace_common.publishing.pump``."""
    return [*module.split("."), ""][1]


def arrows(package: str) -> dict[str, set[str]]:
    """Which room of a package imports which."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        if top(module) == package:
            known = {room_of(name) for name in imports(module) if top(name) == package and name.count(".")}
            found.setdefault(room_of(module), set()).update(known - {room_of(module), "__init__"})
    return found


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_rooms_import_one_way(package: str) -> None:
    graph = TopologicalSorter(arrows(package))
    try:
        list(graph.static_order())
    except CycleError as error:
        pytest.fail(f"{package}: a circle of rooms: {' -> '.join(error.args[1])}")


def layer_of(service: str, layer: str) -> list[str]:
    """A layer's modules: it is one module, or a package of some."""
    name = f"{service}.{layer}"
    assert name in MODULES, f"{service} has no {layer}"
    return [module for module in MODULES if module == name or module.startswith(f"{name}.")]


PURE = sorted(
    [name for name in MODULES if name.startswith(("headrace_common.session.", "headrace_common.record."))]
    + [name for name in MODULES if name.startswith(("headrace_segment.store", "headrace_segment.appending"))]
    + ["headrace_common.connection.deadlines", "headrace_common.listening.proxy"]
    + [name for service in SERVICES for layer in LAYERS for name in layer_of(service, layer)]
)


@pytest.mark.parametrize("module", PURE)
def test_wire_session_and_what_they_are_built_from_know_no_sockets_clocks_or_kafka(module: str) -> None:
    clock = set() if module.split(".")[1] == "client" else {"time"}  # a client's events have times
    for name, by in reach(module).items():
        assert top(name) not in OUTSIDE_WORLD | clock or name in FUNCTIONS_OF_BYTES, f"{module} knows {name}, by {by}"


@pytest.mark.parametrize("service", SERVICES)
def test_layers_know_only_what_lies_below(service: str) -> None:
    process = {"protocol", "__main__"}
    below = {"events": {"session", "settings", *process}, "session": process}
    below["wire"] = {"events", *below["events"]}
    for layer, above in below.items():
        for module in layer_of(service, layer):
            seen = reach(module).keys() & {f"{service}.{name}" for name in above}
            assert not seen, f"{module} knows {seen}"


@pytest.mark.parametrize("path", [*sorted(MODULES.values()), ROOT / "headrace"], ids=as_named)
def test_no_module_is_long(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LINES, f"{lines} lines, at most {LINES}: give one of its roles a module of its own"


def pins() -> dict[str, str]:
    return {name_of_pin(requirement): str(requirement.specifier).removeprefix("==") for requirement in requirements()}


def requirements(*of: str) -> list[Requirement]:
    """Returns the pins for this machine, of all parts or of some. Each has the hashes of its files."""
    if of:
        done = subprocess.run([sys.executable, PINS, "--of", *of], capture_output=True, text=True, check=True)
        text = done.stdout
    else:
        text = (ROOT / "constraints.txt").read_text()
    pinned = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    each = re.compile(
        r"([\w.-]+==[\w.!+]+)(?: ; (.+?))?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n    # for ([\w ]+)\n"
    )
    assert each.sub("", pinned) == "", "constraints.txt has a line that is no pin"
    made = [Requirement(f"{match[1]} ; {match[2]}" if match[2] else match[1]) for match in each.finditer(pinned)]
    return [requirement for requirement in made if requirement.marker is None or requirement.marker.evaluate()]


def name_of_pin(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


@pytest.mark.parametrize(
    "part", ["cli", "common", "conform", "courier", "forward", "lake", "live", "logjam", "lumberjack", "msk", "segment"]
)
def test_a_part_is_installed_with_all_that_it_needs(part: str) -> None:
    """An image installs the pins of its part and asks nobody what these require."""
    own = {name_of_pin(requirement) for requirement in requirements(part)}
    for name in own:
        for needed in importlib.metadata.requires(name) or []:
            requirement = Requirement(needed)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert name_of_pin(requirement) in own, f"{name} needs {requirement.name}"


def test_the_pins_of_a_part_are_of_what_it_declares() -> None:
    """Else an image lacks what was added to a pyproject.toml."""
    sys.path.insert(0, str(PINS.parent))
    try:
        import pins as script
    finally:
        sys.path.pop(0)
    declared = script.parts()
    for part in declared:
        wanted = [Requirement(each) for each in script.of_others(part, declared)]
        names = {name_of_pin(each) for each in wanted if each.marker is None or each.marker.evaluate()}
        assert names <= {name_of_pin(each) for each in requirements(part)}, f"{part}: run python release/pins.py"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_declares_what_it_imports(part: Path) -> None:
    """An image holds what its part declares, and nothing else. A module that needs an extra is imported only in functions, or by
    one that needs it, too.
    """
    document = tomllib.loads((part / "pyproject.toml").read_text())
    declared = names_of(document["project"].get("dependencies", []))
    optional = names_of(chain(*document["project"].get("optional-dependencies", {}).values()))
    known = {
        **importlib.metadata.packages_distributions(),
        "headrace_cli": ["headrace"],
    }
    missing, needing = set(), set()
    here = {name for name, folder in PACKAGES.items() if folder.parent == part}
    ours = [name for name in MODULES if top(name) in here]
    for module in ours:
        at_once = {top(name) for name in imports(module, at_once=True)}
        for name in {top(name) for name in imports(module)} - STANDARD - here:
            sources = {canonicalize_name(source) for source in known.get(name, [name])}
            if not sources & declared and name in at_once:
                needing.add(module)
            if not sources & (declared | optional):
                missing.add(f"{name} (by {module})")
    assert missing == set()
    assert not {module for module in needing if MODULES[module].stem in USUAL}
    assert {module: found for module in set(ours) - needing if (found := imports(module, at_once=True) & needing)} == {}


@pytest.mark.parametrize("service", SERVICES)
def test_a_receiver_imports_nothing_that_only_few_settings_need(service: str) -> None:
    """Five of them share a laptop, and each of these packages takes megabytes of each."""
    used = sorted(name for name in imports(f"{service}.protocol") if name in MODULES)
    script = f"import importlib, sys\nfor name in {used}: importlib.import_module(name)\nprint(*({SELDOM} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def names_of(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(item).name) for item in requirements}


REGISTRIES = """
    pypi org, pythonhosted org, maven org, maven apache org, repository apache org, npmjs org, npmjs com, registry yarnpkg com,
    docker io, hub docker com, ghcr io, gcr io, quay io, registry k8s io, proxy golang org, sum golang org, rubygems org,
    crates io"""
HOSTS = re.compile("|".join(r"\.".join(name.split()) for name in REGISTRIES.split(",")), re.IGNORECASE)


def test_no_file_names_a_registry() -> None:
    named = []
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    assert listed.stdout
    for path in map(ROOT.joinpath, listed.stdout.splitlines()):
        try:
            text = path.read_text()
        except (UnicodeDecodeError, OSError):
            continue
        named += [f"{path.relative_to(ROOT)}: {match[0]}" for match in HOSTS.finditer(text)]
    assert named == []
