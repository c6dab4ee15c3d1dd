"""Where a lake is: a folder of this machine, or a URL of an object store, which deltalake reads."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.request import url2pathname

from headrace_common.operations.errors import CommandError

LakeAddress = Path | str
"""A folder, or what a user wrote: a folder or a URL."""

_URL: Final = re.compile(r"((s3a?|gs)://|(abfss?|az)://([^/?#:@]+@)?)[^/?#:@]+(/[^?#]*)?")
"""A bucket, or a container, and a path. A query, or a password before ``@``, would be a secret that others see."""
OPTIONS: Final = {"max_retries": "3", "retry_timeout": "30s", "connect_timeout": "10s"}
"""How long deltalake tries a store that does not answer. All else it takes from the environment: AWS_…, AZURE_…, GOOGLE_…"""

_SECRET: Final = re.compile(r"KEY|SECRET|TOKEN|SAS|PASSWORD|CREDENTIAL", re.IGNORECASE)
_QUERY: Final = re.compile(r"\?\S+")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def located(text: LakeAddress) -> LakeAddress:
    """Returns the folder, or the URL as deltalake takes it. Raises `CommandError` for other texts."""
    if isinstance(text, Path) or "://" not in text:
        return Path(text)
    if text.startswith("file://"):
        return Path(url2pathname(text.removeprefix("file://")))
    if not _URL.fullmatch(text):
        known = "s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or abfss://CONTAINER@ACCOUNT/PATH"
        raise CommandError(f"--lake: a folder, or {known}; credentials belong into the environment.", status=2)
    return re.sub("^s3a:", "s3:", text).rstrip("/")


def trouble(error: BaseException) -> str:
    """Returns why a store failed: the last two causes that deltalake names, without secrets."""
    causes = [" ".join(cause.split()) for cause in _COLOURS.sub("", str(error)).split("↳")]
    return without_secrets(": ".join(causes[-2:]))


def without_secrets(text: str) -> str:
    """Returns `text` without the secrets of the environment, and without the queries of URLs, which may sign."""
    for name, value in os.environ.items():
        if len(value) > 3 and _SECRET.search(name):
            text = text.replace(value, "…")
    return _QUERY.sub("?…", text)
