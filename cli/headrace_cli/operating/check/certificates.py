"""Whether clients will accept a receiver's certificate: its key, dates, names and chain."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID
from headrace_common.operations.settings import TlsSettings

from headrace_cli.operating.check.parts import Finding, Verdict

SOON: Final = timedelta(days=30)
CHECK: Final = "certificate"


def check_certificates(settings: TlsSettings, now: datetime | None = None) -> list[Finding]:
    """What is wrong or doubtful; one line that says what is there if nothing is. Reads the files; raises nothing."""
    if settings.cert is None or settings.key is None:
        return []
    moment = now or datetime.now(UTC)
    try:
        chain = x509.load_pem_x509_certificates(settings.cert.read_bytes())
    except (OSError, ValueError) as error:
        return [
            _wrong("TLS__CERT", settings.cert, f"cannot be read: {_first(error)}", "name a PEM file that it may read")
        ]
    found = [
        *_pair(settings.cert, settings.key),
        *_dates("TLS__CERT", settings.cert, chain, moment),
        *_names(settings.cert, chain[0]),
        *_use(settings.cert, chain[0]),
        *_order(settings.cert, chain),
        *(_authority(settings.client_ca, moment) if settings.client_ca is not None else ()),
    ]
    if found:
        return found
    names = ", ".join(_subject_names(chain[0]))
    until = chain[0].not_valid_after_utc.date().isoformat()
    return [Finding(CHECK, Verdict.FINE, f"{settings.cert}: for {names}, until {until}")]


def _wrong(setting: str, path: Path, what: str, mend: str, verdict: Verdict = Verdict.WRONG) -> Finding:
    return Finding(CHECK, verdict, f"{setting} {path} {what}", mend)


def _first(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _no_password() -> str:
    raise ValueError("it is encrypted")


def _pair(cert: Path, key: Path) -> Iterator[Finding]:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        mismatch = "KEY_VALUES_MISMATCH" in str(error)
        what = f"is not the key of TLS__CERT {cert}" if mismatch else f"cannot be used: {_first(error)}"
        yield _wrong("TLS__KEY", key, what, "give the certificate and the key that were made together, unencrypted")


def _dates(setting: str, path: Path, chain: Sequence[x509.Certificate], now: datetime) -> Iterator[Finding]:
    for number, certificate in enumerate(chain):
        which = "" if len(chain) == 1 else f" (certificate {number + 1} of {len(chain)} in it)"
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if now >= ends:
            yield _wrong(
                setting, path, f"has expired on {ends.date()}{which}", "replace the file; no restart is needed"
            )
        elif now < begins:
            yield _wrong(
                setting, path, f"is not valid before {begins:%Y-%m-%d %H:%M} UTC{which}", "check this machine's clock"
            )
        elif ends - now < SOON:
            days = (ends - now).days
            yield _wrong(setting, path, f"expires in {days} days{which}", "replace the file in time", Verdict.DOUBT)


def _subject_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]


def _names(path: Path, certificate: x509.Certificate) -> Iterator[Finding]:
    if not _subject_names(certificate):
        yield _wrong(
            "TLS__CERT",
            path,
            "names no host",
            "make one whose subject alternative names are what clients call this receiver",
        )


def _use(path: Path, certificate: x509.Certificate) -> Iterator[Finding]:
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return
    if ExtendedKeyUsageOID.SERVER_AUTH not in uses and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in uses:
        yield _wrong("TLS__CERT", path, "is not for servers", "make one with the extended key usage serverAuth")


def _order(path: Path, chain: Sequence[x509.Certificate]) -> Iterator[Finding]:
    for lower, upper in itertools.pairwise(chain):
        try:
            lower.verify_directly_issued_by(upper)
        except (ValueError, TypeError, InvalidSignature):
            what = f"is no chain: {lower.subject.rfc4514_string()} is not signed by the next, {upper.subject.rfc4514_string()}"
            yield _wrong("TLS__CERT", path, what, "put the server's certificate first, then each one's issuer")
            return


def _authority(path: Path, now: datetime) -> Iterator[Finding]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        yield _wrong("TLS__CLIENT_CA", path, f"cannot be read: {_first(error)}", "name a PEM file that it may read")
        return
    yield from _dates("TLS__CLIENT_CA", path, found, now)
    for certificate in found:
        try:
            signs = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (x509.ExtensionNotFound, ValueError):
            signs = False
        if not signs:
            what = f"holds {certificate.subject.rfc4514_string()}, which is no authority"
            yield _wrong("TLS__CLIENT_CA", path, what, "name the certificate that signed those of the clients")
