"""The stack's own authority: made once, renewed when it must be, and good for real TLS."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from pathlib import Path

import pytest
from headrace_cli import certificates
from headrace_cli.certificates import Certificates, ensure
from headrace_cli.errors import CommandError
from headrace_cli.services import SERVICES
from headrace_cli.stack import _receiver
from headrace_cli.state import StateFolder


def contents(made: Certificates) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.folder.iterdir()}


def talk(made: Certificates, name: str, *, client_certificate: bool) -> str:
    """The subject that a server with the stack's certificate sees of a client, which it calls by `name`."""
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
    seen: list[dict] = []

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as connection:
            seen.append(connection.getpeercert() or {})
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname=name) as connection:
        connection.send(b"x")
    thread.join(10)
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


def test_another_host_needs_another_certificate_of_the_same_authority(tmp_path: Path) -> None:
    first = contents(ensure(tmp_path / "tls", "127.0.0.1"))
    made = ensure(tmp_path / "tls", "receiver.example")
    second = contents(made)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"server.pem", "server.key"}
    talk(made, "receiver.example", client_certificate=False)


def test_what_soon_expires_is_renewed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(certificates, "DAYS", certificates.RENEW_DAYS - 1)
    first = contents(ensure(tmp_path / "tls", "127.0.0.1"))
    monkeypatch.undo()
    second = contents(ensure(tmp_path / "tls", "127.0.0.1"))
    assert {name for name in first if first[name] != second[name]} == {
        "server.pem",
        "server.key",
        "client.pem",
        "client.key",
    }
    assert datetime.datetime.now(datetime.UTC)


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
