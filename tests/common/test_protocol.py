"""The protocols that are installed, and the names of settings' sections that follow from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path
from pkgutil import resolve_name

import pytest
from headrace_common.__main__ import main
from headrace_common.operations import variables
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_common.operations.settings import ServiceSettings
from headrace_common.operations.variables import PROTOCOLS
from headrace_common.protocol import installed
from headrace_common.session.client import Client

SERVICES = Path(__file__).resolve().parents[2] / "services"


def test_every_service_of_the_repository_is_a_protocol() -> None:
    """Fails, too, where the environment is older than the checkout: `./headrace` refreshes it."""
    folders = {path.parent.name for path in SERVICES.glob("*/pyproject.toml")}
    packages = {protocol.build.__module__.partition(".")[0] for protocol in installed()}
    assert packages == {f"headrace_{folder}" for folder in folders}


def test_a_protocol_names_its_section_and_its_own_ports() -> None:
    ports = []
    for protocol in installed():
        assert protocol.settings.model_fields.keys() - ServiceSettings.model_fields.keys() <= {protocol.name}
        assert not protocol.client or issubclass(resolve_name(protocol.client), Client)
        assert callable(resolve_name(protocol.again))
        ports += [protocol.ops_port, *(port.port for port in protocol.listeners)]
    assert len(ports) == len(set(ports))


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, EntryPoint]]:
    """The entry points, as if these alone were installed."""
    found: dict[str, EntryPoint] = {}
    monkeypatch.setattr(variables, "named_protocols", lambda: found)
    for module in ("protocol", "__main__"):
        monkeypatch.setattr(f"headrace_common.{module}.named_protocols", lambda: found)
    installed.cache_clear()
    yield found
    installed.cache_clear()


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a stranger, whose modules a test writes."""
    (package := tmp_path / "strange").mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "strange"]:
        monkeypatch.delitem(sys.modules, name)
    return package


RESERVED = ("net-dot", "Upper", "x/y", "1st", "a_b", "é", "lake", "kafka", "live")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("new", "headrace_nowhere.protocol:PROTOCOL", "cannot be loaded"),
        ("new", "headrace_forward.settings:PORT", "is no Protocol of this name"),
        ("new", "headrace_forward.protocol:PROTOCOL", "is no Protocol of this name"),
        ("new", "strange.broken:PROTOCOL", "ZeroDivisionError"),
        *((name, "strange.named:PROTOCOL", "small letters and digits") for name in RESERVED),
        *((name, "strange.named:PROTOCOL", "") for name in ("relp", "a1")),
    ],
)
def test_an_entry_point_names_a_protocol_in_one_word(
    named: dict[str, EntryPoint], name: str, value: str, problem: str, strange: Path
) -> None:
    """In variables, types and URLs."""
    (strange / "broken.py").write_text("1 / 0")
    (strange / "named.py").write_text(f"""from dataclasses import replace
from headrace_forward.protocol import PROTOCOL
PROTOCOL = replace(PROTOCOL, name={name!r})""")
    named[name] = EntryPoint(name, value, PROTOCOLS)
    with pytest.raises(ConfigError, match=problem) if problem else nullcontext():
        assert name in {protocol.name for protocol in installed()}


@pytest.mark.parametrize(("name", "status"), [("broken", EXIT_CONFIG), ("nothing", 2)])
def test_a_receiver_that_cannot_be_loaded_says_so(
    named: dict[str, EntryPoint], name: str, status: int, strange: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (strange / "broken.py").write_text("1 / 0")
    named["broken"] = EntryPoint("broken", "strange.broken:PROTOCOL", PROTOCOLS)
    monkeypatch.setattr(sys, "argv", ["", name])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
