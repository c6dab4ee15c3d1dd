"""The jars of Kafka and of the landing job.

``jars.txt`` beside this module lists them. They come from Maven Central; each one is checked against its SHA-256.

    python -m headrace_cli.machine.jars FOLDER SET…    # copies these sets into a folder, for LAKE__JARS, an image or a cluster
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import ssl
import sys
import urllib.error
import urllib.request
import zipfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from headrace_common import __version__

from headrace_cli.ground import CommandError, cache

LIST: Final = Path(__file__).with_name("jars.txt")
REPOSITORY_VARIABLE: Final = "HEADRACE_MAVEN_REPOSITORY"
"""Environment variable with the address of a Maven repository that replaces Maven Central."""
SILENCE: Final = 60.0
"""Seconds without a byte after which a download fails."""


class Jar(NamedTuple):
    """One line of ``jars.txt``."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where a Maven repository has it."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


def listed(name: str) -> list[Jar]:
    """Return the jars of the set `name` in ``jars.txt``. Raises `CommandError` for an unknown set."""
    rows = [line.replace(":", " ").split() for line in LIST.read_text().splitlines()]
    found = [Jar(*row[1:]) for row in rows if row[:1] == [name]]
    if not found:
        raise CommandError(f"jars.txt has no set called {name}.")
    return found


def jars(name: str) -> Path:
    """Return a folder with exactly the jars of the set `name` (``kafka``, ``spark``, ``s3``, ``msk``); fetch what is missing.

    The first call may block for minutes, and says so on standard error. Each jar comes into the folder as a whole: neither an
    interruption nor a second process that fetches does harm. Raises `CommandError` (no network, no disk, a wrong checksum).
    """
    wanted = listed(name)
    key = hashlib.sha256("\n".join(map(repr, wanted)).encode()).hexdigest()[:16]
    folder = cache() / "jars" / f"{name}-{key}"
    missing = [jar for jar in wanted if not (folder / jar.file).is_file()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if missing:
            print(f"fetching {len(missing)} {name} jars", file=sys.stderr, flush=True)
        for jar in missing:
            part = folder / f"{jar.file}.{os.getpid()}"
            part.write_bytes(_download(jar))
            part.rename(folder / jar.file)
    except OSError as error:
        raise CommandError(f"The {name} jars cannot be stored in {folder.parent}: {error.strerror}.") from error
    return folder


def _download(jar: Jar) -> bytes:
    """Return the jar's bytes, through the proxies that Python uses. Raises `CommandError` if they are not those of the list."""
    repository = os.environ.get(REPOSITORY_VARIABLE) or maven_central()
    request = urllib.request.Request(  # noqa: S310  (the user names the repository, which may be a folder)
        f"{repository.rstrip('/')}/{jar.path}", headers={"User-Agent": f"headrace/{__version__}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SILENCE, context=_trust()) as answer:  # noqa: S310
            content: bytes = answer.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CommandError(f"{jar.file} could not be fetched: {getattr(error, 'reason', error)}.") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != jar.sha256:
        raise CommandError(f"{jar.file} differs from jars.txt: its SHA-256 is {digest}, not {jar.sha256}.")
    return content


@lru_cache
def maven_central() -> str:
    """Return the address of Maven Central, which PySpark's Ivy knows. Raises `CommandError` without PySpark."""
    try:
        (ivy,) = (each for each in (files("pyspark") / "jars").iterdir() if each.name.startswith("ivy-"))
        with ivy.open("rb") as file, zipfile.ZipFile(file) as jar:
            text = jar.read("org/apache/ivy/core/settings/repository.properties").decode()
    except (ModuleNotFoundError, OSError, ValueError, KeyError):
        raise CommandError("PySpark is not installed, whose Ivy knows where Maven Central is.") from None
    address: str = re.findall(r"^ivy\.ibiblio\.default\.artifact\.root\s*=\s*(\S+)", text, re.MULTILINE)[0]
    return address


def _trust() -> ssl.SSLContext:
    """Return a context with the authorities that Python trusts; where it has none (on macOS), with those that pip brings."""
    context = ssl.create_default_context()
    there = ssl.get_default_verify_paths()
    if there.cafile is None and there.capath is None:
        context.load_verify_locations(str(files("pip") / "_vendor" / "certifi" / "cacert.pem"))
    return context


if __name__ == "__main__":
    try:
        into = Path(sys.argv[1])
        for chosen in sys.argv[2:]:
            shutil.copytree(jars(chosen), into, dirs_exist_ok=True)
    except (CommandError, OSError) as failed:
        sys.exit(str(failed))
