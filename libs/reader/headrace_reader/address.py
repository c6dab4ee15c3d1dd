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

_AZURE: Final = "abfss", "abfs", "az"
_SCHEMES: Final = "s3", "s3a", *_AZURE, "gs"
OPTIONS: Final = {"max_retries": "3", "retry_timeout": "30s", "connect_timeout": "10s"}
"""How long deltalake tries a store that does not answer. All else it takes from the environment: AWS_…, AZURE_…, GOOGLE_…"""

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
    if "@" in parts.netloc and (scheme not in _AZURE or ":" in parts.netloc):
        raise CommandError("--lake has a password in it: credentials belong into the environment.", status=2)
    if parts.query or parts.fragment:
        raise CommandError(f"--lake {scheme}://{parts.netloc}{parts.path} goes on with ? or #: leave it out.", status=2)
    if not parts.netloc:
        raise CommandError(f"--lake {text}: no bucket; expected {scheme}://BUCKET/PATH.", status=2)
    return f"{'s3' if scheme == 's3a' else scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def trouble(error: BaseException, environment: Mapping[str, str] | None = None) -> str:
    """Returns why a store failed: the last two causes that deltalake names, without secrets."""
    causes = [" ".join(cause.split()) for cause in _COLOURS.sub("", str(error)).split("↳")]
    return without_secrets(": ".join(causes[-2:]), environment)


def without_secrets(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Returns `text` without the secrets of the environment, and without the queries of URLs, which may sign."""
    for name, value in (os.environ if environment is None else environment).items():
        if len(value) > 3 and _SECRET.search(name):
            text = text.replace(value, "…")
    return _QUERY.sub("?…", text)
