"""Where a lake is: a folder of this machine, or a URL of an object store, which deltalake reads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from headrace_common.operations.errors import CommandError

LakeAddress = Path | str
"""A folder, or what a user wrote: a folder or a URL."""

_SCHEMES: Final = {
    "s3": "S3", "s3a": "S3", "abfss": "Azure", "abfs": "Azure", "az": "Azure", "gs": "Google",
}  # fmt: skip
_CREDENTIALS: Final = {
    "S3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "Azure": "AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CLIENT_ID with its secret and tenant",
    "Google": "GOOGLE_SERVICE_ACCOUNT, a file",
}
OPTIONS: Final = {"max_retries": "3", "retry_timeout": "30s", "connect_timeout": "10s"}
"""How long deltalake tries a store that does not answer. All else it takes from the environment: AWS_…, AZURE_…, GOOGLE_…"""

_CAUSES: Final = (
    ("url scheme is not allowed", "its endpoint speaks plain HTTP, which AWS_ALLOW_HTTP=true allows"),
    ("account must be specified", "AZURE_STORAGE_ACCOUNT_NAME is missing"),
    ("nosuchbucket", "there is no such bucket"),
    ("169.254.169.254", "there are no credentials: set {credentials}"),
    ("metadata.google.internal", "there are no credentials: set {credentials}"),
    ("invalidaccesskeyid", "the store does not know the key of {credentials}"),
    ("signaturedoesnotmatch", "the store refuses the secret of {credentials}"),
    ("expiredtoken", "the credentials have expired"),
    ("accessdenied", "these credentials may not read it"),
    ("403 forbidden", "these credentials may not read it"),
    ("401 unauthorized", "the store refuses the credentials"),
    ("failed to lookup address", "the name of the store's host does not resolve"),
    ("connection refused", "nothing listens at the store's address"),
    ("operation timed out", "the store does not answer"),
)
"""Texts in deltalake's chain of errors -> their meaning."""
_SECRET: Final = re.compile(r"KEY|SECRET|TOKEN|SAS|PASSWORD|CREDENTIAL", re.IGNORECASE)
_QUERY: Final = re.compile(r"\?\S+")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def located(text: Path | str) -> Path | str:
    """Returns the folder, or the URL as deltalake takes it. Raises `CommandError` for other texts."""
    if isinstance(text, Path):
        return text
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise CommandError("--lake is no URL: expected s3://BUCKET/PATH.", status=2) from None
    if scheme == "file":
        return Path(url2pathname(parts.path))
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise CommandError(f"--lake {scheme}://…: it is a folder, or a URL of {known}.", status=2)
    if "@" in parts.netloc and (_SCHEMES[scheme] != "Azure" or ":" in parts.netloc):
        raise CommandError("--lake has a password in it: credentials belong into the environment.", status=2)
    if parts.query or parts.fragment:
        raise CommandError(f"--lake {scheme}://{parts.netloc}{parts.path} goes on with ? or #: leave it out.", status=2)
    if not parts.netloc:
        raise CommandError(f"--lake {text}: no bucket; expected {scheme}://BUCKET/PATH.", status=2)
    return f"{'s3' if scheme == 's3a' else scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def trouble(url: str, error: BaseException, environment: Mapping[str, str] | None = None) -> str:
    """Returns why the store at `url` failed, in one sentence without secrets."""
    chain = _COLOURS.sub("", str(error))
    store = _SCHEMES[url.partition("://")[0]]
    for found, meaning in _CAUSES:
        if found in chain.lower():
            return meaning.format(credentials=_CREDENTIALS[store])
    causes = [" ".join(cause.split()) for cause in chain.split("↳")]
    return without_secrets(": ".join(causes[-2:]), environment)


def without_secrets(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Returns `text` without the secrets of the environment, and without the queries of URLs, which may sign."""
    for name, value in (os.environ if environment is None else environment).items():
        if len(value) > 3 and _SECRET.search(name):
            text = text.replace(value, "…")
    return _QUERY.sub("?…", text)
