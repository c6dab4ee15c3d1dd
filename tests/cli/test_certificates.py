"""The stack's own authority: made once, its certificates renewed in time, and good for real TLS."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import zmq
from headrace_cli.ground import CommandError
from headrace_cli.stack import certificates
from headrace_cli.stack import certificates as curve
from headrace_cli.stack.certificates import Certificates, ensure
from headrace_cli.stack.stack import SERVICES, _receiver
from headrace_cli.stack.state import StateFolder

from tests.contract.waiting import PATIENCE


def contents(made: Certificates) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.folder.iterdir()}


def talk(made: Certificates, name: str, *, client_certificate: bool) -> str:
    """Connect by TLS to a server that is called `name`; return the common name that it sees of the client."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*made.server)
    if client_certificate:
        server.load_verify_locations(made.ca)
        server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(made.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    if client_certificate:
        client.load_cert_chain(*made.client)
    ours, theirs = socket.socketpair()
    seen: list[dict[str, Any]] = []

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as connection:
            seen.append(connection.getpeercert() or {})
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname=name) as connection:
        connection.send(b"x")
    thread.join(PATIENCE)
    return dict(pair for group in seen[0].get("subject", ()) for pair in group).get("commonName", "")


def test_they_are_made_once_and_private(tmp_path: Path) -> None:
    made = ensure(tmp_path / "tls", "127.0.0.1")
    first = contents(made)
    assert sorted(first) == ["ca.key", "ca.pem", "client.key", "client.pem", "server.key", "server.pem"]
    assert contents(ensure(tmp_path / "tls", "127.0.0.1")) == first
    assert {path.name for path in made.folder.iterdir() if path.stat().st_mode & 0o077} == {
        "ca.pem",
        "client.pem",
        "server.pem",
    }


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", socket.gethostname(), "192.0.2.9"])
def test_clients_that_trust_the_authority_are_served(tmp_path: Path, name: str) -> None:
    made = ensure(tmp_path / "tls", "192.0.2.9")
    assert talk(made, name, client_certificate=False) == ""
    assert talk(made, name, client_certificate=True) == "headrace-client"


@pytest.mark.parametrize("name", ["bücher", "ü" * 32])
def test_a_machine_may_have_a_name_that_no_certificate_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert talk(ensure(tmp_path / "tls", "127.0.0.1"), "localhost", client_certificate=False) == ""


def test_another_host_needs_another_certificate_of_the_same_authority(tmp_path: Path) -> None:
    first = contents(ensure(tmp_path / "tls", "127.0.0.1"))
    made = ensure(tmp_path / "tls", "receiver.example")
    second = contents(made)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"server.pem", "server.key"}
    talk(made, "receiver.example", client_certificate=False)


def test_what_soon_expires_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "CERTIFICATE_DAYS", certificates.RENEW_DAYS - 1)
    first = contents(ensure(tmp_path / "tls", "127.0.0.1"))
    monkeypatch.undo()
    second = contents(ensure(tmp_path / "tls", "127.0.0.1"))
    assert {name for name in first if first[name] != second[name]} == {
        "server.pem",
        "server.key",
        "client.pem",
        "client.key",
    }


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    made = ensure(tmp_path / "tls", "127.0.0.1")
    made.ca.write_text("something else")
    with pytest.raises(CommandError, match="cannot be used"):
        ensure(tmp_path / "tls", "127.0.0.1")


def test_receivers_get_them_and_clients_are_told(tmp_path: Path) -> None:
    made = ensure(tmp_path / "a {brace}" / "tls", "127.0.0.1")
    (service,) = [service for service in SERVICES if service.name == "forward"]
    spec, endpoint = _receiver(service, [24224], 8082, "127.0.0.1", StateFolder(tmp_path), {}, made)
    assert spec.environment["HEADRACE_TLS__CERT"] == str(made.server[0])
    assert spec.environment["HEADRACE_TLS__KEY"] == str(made.server[1])
    line = endpoint.hint.format(listen=endpoint.listen)
    assert line.endswith(f"-p tls=on -p tls.ca_file={made.ca}")
    plain, without = _receiver(service, [24224], 8082, "127.0.0.1", StateFolder(tmp_path), {}, None)
    assert "HEADRACE_TLS__CERT" not in plain.environment
    assert "tls" not in without.hint


def test_logjam_gets_curve_keys_instead(tmp_path: Path) -> None:
    made = ensure(tmp_path / "a {brace}" / "tls", "127.0.0.1")
    (service,) = [service for service in SERVICES if service.curve]
    spec, endpoint = _receiver(service, [9604, 9605], 8084, "127.0.0.1", StateFolder(tmp_path), {}, made)
    assert not any(name.startswith("HEADRACE_TLS__") for name in spec.environment)
    assert "HEADRACE_TLS__CLIENT_CA" in spec.without
    keys = curve.ensure_curve(made.folder)
    assert spec.environment["HEADRACE_LOGJAM__CURVE_SECRET_KEY_FILE"] == str(keys.server[1])
    client = json.loads(spec.environment["HEADRACE_LOGJAM__CURVE_CLIENTS"])["client"]
    assert client == keys.client[0].read_text().strip()
    assert zmq.curve_public(keys.client[1].read_bytes().strip()).decode() == client
    assert {path.name for path in made.folder.glob("curve*") if path.stat().st_mode & 0o077} == {
        "curve.pub",
        "curve-client.pub",
    }
    assert f"{made.folder}/curve.pub" in endpoint.hint.format(listen=endpoint.listen)
    assert endpoint.listeners == {"listen": "127.0.0.1:9604", "pull": "127.0.0.1:9605"}
    before = contents(made)
    curve.ensure_curve(made.folder)
    assert contents(made) == before


def test_a_curve_key_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "curve.key").write_text("nonsense")
    with pytest.raises(CommandError, match="cannot be used"):
        curve.ensure_curve(tmp_path)


def test_no_line_of_a_stack_with_tls_says_tcp() -> None:
    """A user copies it as it stands."""
    for service in SERVICES:
        hint = service.hint.replace("{transport}", "tls") + service.tls_hint
        assert "transport: tcp" not in hint
        assert "{transport}" in service.hint or "transport" not in service.hint
