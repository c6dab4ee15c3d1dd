"""TLS: who a client is, and files that change."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
from headrace_common.listening.tls import client_tls, identity
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import TlsSettings

from tests.contract.certificates import Authority


def certificate(*subject: tuple[str, str], names: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    return {"subject": tuple((pair,) for pair in subject), "subjectAltName": names}


ORGANIZATION, DNS = ("organizationName", "O"), (("IP Address", "10.0.0.1"), ("DNS", "first"), ("DNS", "second"))


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (None, None),
        ({}, None),
        (certificate(ORGANIZATION, ("commonName", "c"), names=DNS), "c"),
        (certificate(ORGANIZATION, names=DNS), "first"),
        (certificate(("commonName", ""), names=DNS), "first"),
        (certificate(("countryName", "C"), ORGANIZATION), "countryName=C,organizationName=O"),
        (certificate(names=(("URI", "spiffe://x"),)), None),
    ],
)
def test_a_client_is_its_common_name_dns_name_or_subject(shown: Any, name: str | None) -> None:
    assert identity(shown) == name


def context(files: tuple[Path, Path], **settings: Any) -> ssl.SSLContext:
    given = TlsSettings(cert=files[0], key=files[1], **settings)
    return client_tls(given, ReceiverMetrics()).current()


def test_the_lowest_version(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("server", "server")
    assert context(files).minimum_version is ssl.TLSVersion.TLSv1_2
    assert context(files, minimum="1.3").minimum_version is ssl.TLSVersion.TLSv1_3


def shakes(
    client: ssl.SSLContext, server: ssl.SSLContext, before: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Returns both sides of a connection, the client's first, which resumes the session `before` if it can."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=before)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for each in (ours, theirs) * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            each.do_handshake()
    theirs.write(b"answer")
    assert ours.read(10) == b"answer"
    return ours, theirs


def test_renewed_files_are_for_new_connections(tmp_path: Path) -> None:
    """Half a renewal changes nothing."""
    authority, metrics = Authority(tmp_path), ReceiverMetrics()
    cert, key = authority.issue("server", "first", days=1)
    server, client = client_tls(TlsSettings(cert=cert, key=key), metrics), authority.context()
    serials, ends = set(), set()
    for number in range(3):
        shown = shakes(client, server)[0].getpeercert()
        serials.add(shown["serialNumber"] if shown else None)
        ends.add(metrics.certificate_expiry._value.get())
        if number == 0:
            authority.issue("server", "second", days=2)
        else:
            cert.write_text("no certificate")
    assert (len(serials), len(ends)) == (2, 2)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_outlives_a_change_of_the_files(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A resumed session's client certificate is not checked again; by TLS 1.3 none is resumed."""
    authority = Authority(tmp_path)
    files = authority.issue("server", "server")
    before, after = (context(files, client_ca=authority.file) for _ in range(2))
    client = authority.context(authority.issue("client", "client"))
    client.minimum_version = client.maximum_version = version
    first, _ = shakes(client, before)
    assert not first.session_reused
    assert shakes(client, before, first.session)[0].session_reused is (version is ssl.TLSVersion.TLSv1_2)
    assert not shakes(client, after, first.session)[0].session_reused
