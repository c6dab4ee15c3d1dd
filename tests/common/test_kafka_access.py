"""The certificate that Kafka's clients show: what is refused, what is warned of, and what is read again."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from headrace_common.kafka.client import broker_tls, client_arguments
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka.source import client_options

from tests.common.test_tls import shakes
from tests.contract.certificates import Authority
from tests.contract.waiting import there


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def with_tls(certificate: Path | None, key: Path | None) -> KafkaSettings:
    return KafkaSettings(security_protocol="SSL", certificate=certificate, key=key)


SASL = {"sasl_username": "u", "sasl_password": "p"}
OAUTH = {"oauth_endpoint": "https://login/t", "oauth_client_id": "c", "oauth_client_secret": "s"}
BEARER = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
NO_URL = ("file:///token", "login.example.org", "https://", "https://u:p@login.example.org/t")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"certificate": "c", "security_protocol": "SSL"}, "KAFKA__CERTIFICATE and KAFKA__KEY go together"),
        ({"key": "k", "security_protocol": "SSL"}, "KAFKA__CERTIFICATE and KAFKA__KEY go together"),
        ({"certificate": "c", "key": "k"}, "needs KAFKA__SECURITY_PROTOCOL SSL or SASL_SSL"),
        ({"ca": "c"}, "KAFKA__CA needs KAFKA__SECURITY_PROTOCOL SSL or SASL_SSL"),
        (SASL, "KAFKA__SASL_PASSWORD needs KAFKA__SECURITY_PROTOCOL"),
        ({"security_protocol": "SASL_SSL"}, "SASL_USERNAME and SASL_PASSWORD"),
        *(({**BEARER, **OAUTH, name: ""}, "needs OAUTH_ENDPOINT, OAUTH_CLIENT_ID and OAUTH_CLIENT_SECRET") for name in OAUTH),
        ({**OAUTH, "security_protocol": "SSL"}, "KAFKA__OAUTH_ENDPOINT needs KAFKA__SASL_MECHANISM OAUTHBEARER"),
        ({**SASL, **OAUTH, "security_protocol": "SASL_SSL"}, "KAFKA__OAUTH_ENDPOINT needs KAFKA__SASL_MECHANISM OAUTHBEARER"),
        *(({**BEARER, **OAUTH, "oauth_endpoint": url}, "not a URL such as https") for url in NO_URL),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM needs .+ SASL_SSL"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_do_not_fit_each_other_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KafkaSettings(**given)


FILES = {
    "good": ("client.pem", "client.key", None),
    "locked": ("locked.pem", "locked.key", "unencrypted"),
    "not its key": ("client.pem", "another.key", "its own key"),
    "no file": ("none", "client.key", "No such file"),
    "no PEM": ("other", "client.key", "no certificate"),
    "no PEM key": ("client.pem", "other", "no certificate"),
}
"""Certificate and key; what is said of them."""


@pytest.mark.parametrize("read", [client_arguments, client_options], ids=["receivers", "landing job"])
@pytest.mark.parametrize("name", FILES)
def test_files(authority: Authority, tmp_path: Path, read: Callable[[KafkaSettings], object], name: str) -> None:
    """Each fault is a `ConfigError`, hence status 78, for both clients of Kafka."""
    authority.issue("client", "client")
    authority.issue("another", "another")
    authority.issue("locked", "locked", password="right")
    (tmp_path / "other").write_text("nothing\n")
    certificate, key, says = FILES[name]
    named = f"KAFKA__CERTIFICATE .+/{certificate}, KAFKA__KEY .+/{key}: .*{says}"
    with pytest.raises(ConfigError, match=named) if says else nullcontext():
        read(with_tls(tmp_path / certificate, tmp_path / key))


def test_the_landing_job_gets_a_key_for_any_java(authority: Authority) -> None:
    """No Java reads OpenSSL's older form."""
    certificate, key = authority.issue("client", "client")
    plain = client_options(with_tls(certificate, key))["ssl.keystore.key"]
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        assert client_options(with_tls(certificate, key))["ssl.keystore.key"] == plain


def shown(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Returns the name in the certificate that a client with this context shows to a server."""
    subject: Any = there(shakes(client, server)[1].getpeercert())["subject"]
    return dict(pair for group in subject for pair in group)["commonName"]


def test_a_renewed_certificate_is_shown_on_the_next_connection(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A producer lives for months, its certificate for days."""
    server = authority.server(asks=True)
    certificate, key = authority.issue("client", "first")
    context = broker_tls(with_tls(certificate, key).model_copy(update={"ca": authority.file}))
    assert shown(context, server) == "first"
    authority.issue("client", "second")
    assert shown(context, server) == "second"
    whole = key.read_bytes()
    key.write_bytes(whole[:50])  # half written
    assert shown(context, server) == "second"
    assert "the former ones stay: KAFKA__CERTIFICATE" in caplog.text
    authority.issue("client", "third")
    assert shown(context, server) == "third"
    (tmp_path / "other").mkdir()
    authority.file.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):  # what the former CA has signed is not trusted any more
        shown(context, server)
