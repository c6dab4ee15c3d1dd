"""What the stack needs beside Python: Java, and the jars of Kafka and of the landing job.

The jars are the ones listed in ``jars.txt``, each checked against its SHA-256. PySpark brings Ivy, which knows Maven
Central by itself and fetches them; nothing else has to be installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from headrace_cli.errors import CommandError
from headrace_cli.filelock import locked
from headrace_cli.java import Java, find_java
from headrace_cli.places import cache, committed
from headrace_cli.tether import tethered
from headrace_cli.truststore import PASSWORD, authorities, jks

REPOSITORY_VARIABLE: Final = "HEADRACE_MAVEN_REPOSITORY"
"""Environment variable with the address of a Maven repository to fetch from instead of Maven Central."""

Progress = Callable[[str, int, int], None]
"""Called with what is being fetched, how many of how many are here."""

_FAILURES: Final = (
    (r"No space left on device", "the disk is full"),
    (r"PKIX path building failed|SSLHandshakeException", "this machine does not trust the repository's certificate"),
    (r"UnknownHostException|ConnectException|SocketTimeoutException|NoRouteToHost|SocketException", "no network"),
    (r"UNRESOLVED DEPENDENCIES|not found", "the repository lacks it or cannot be reached"),
)


class Jar(NamedTuple):
    """One line of ``jars.txt``."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def java_home() -> Path:
    """The folder to give as JAVA_HOME to whatever starts Java. Raises `CommandError`."""
    return find_java().home


def listed(name: str) -> list[Jar]:
    """The jars of the set `name` in ``jars.txt``. Raises `CommandError` for a line that is none or an unknown set."""
    found = []
    for line in committed("jars.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+) ([^:\s]+):([^:\s]+):([^:\s]+) ([0-9a-f]{64})", line.strip())
        if match is None:
            raise CommandError(f"jars.txt: this line is not `set group:artifact:version sha256`: {line}")
        if match[1] == name:
            found.append(Jar(*match.groups()[1:]))
    if not found:
        raise CommandError(f"jars.txt has no set called {name}.")
    return found


def jars(name: str, progress: Progress | None = None) -> Path:
    """The folder with exactly the jars of the set `name` (``kafka``, ``spark``, ``s3``); fetched if they are not there yet.

    May block for minutes the first time. Two at once don't disturb each other; a fetch that was interrupted goes on with
    the jars that it lacks. Raises `CommandError` (no network, no disk, a wrong checksum).
    """
    wanted = listed(name)
    key = hashlib.sha256("\n".join(map(repr, wanted)).encode()).hexdigest()[:16]
    folder = cache() / "jars" / f"{name}-{key}"
    if _complete(folder, wanted):
        return folder
    report = progress or (lambda what, done, total: None)
    try:
        folder.parent.mkdir(exist_ok=True)
        with locked(folder.with_suffix(".lock"), lambda: report(f"{name} jars: another process fetches them", 0, 0)):
            if not _complete(folder, wanted):
                _fetch(name, wanted, folder, report)
    except OSError as error:
        raise CommandError(f"The {name} jars cannot be stored in {folder.parent}: {error.strerror}.") from error
    return folder


def copy_jars(folder: Path, into: Path) -> None:
    """Copies the jars of `folder`, which `jars` returned, to the folder `into`. Raises `CommandError`."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        for jar in sorted(folder.glob("*.jar")):
            shutil.copyfile(jar, into / jar.name)
    except OSError as error:
        raise CommandError(f"The jars cannot be copied to {into}: {error.strerror}.") from error


def class_path(name: str, progress: Progress | None = None) -> str:
    """A Java class path of the jars of the set `name`; as `jars`."""
    return str(jars(name, progress) / "*")


def _complete(folder: Path, wanted: list[Jar]) -> bool:
    """`folder` appears by one rename, so it is whole unless somebody took files away."""
    return all((folder / jar.file).is_file() for jar in wanted)


def _fetch(name: str, wanted: list[Jar], folder: Path, report: Progress) -> None:
    work = folder.with_suffix(".part")  # Ivy's own cache in it survives an interruption
    shutil.rmtree(work / "out", ignore_errors=True)
    work.mkdir(exist_ok=True)
    java = find_java()
    (work / "settings.xml").write_text(_settings(work, os.environ.get(REPOSITORY_VARIABLE, "")))
    (work / "ivy.xml").write_text(_module(name, wanted))
    output = _run_ivy(java, work, len(wanted), lambda done: report(f"{name} jars", done, len(wanted)))
    if not _complete(work / "out", wanted):
        # with one that it does not find Ivy hands out none; those that it has fetched it keeps for the next time
        lacking = [jar.file for jar in wanted if f"not found: {jar.group}#{jar.artifact};{jar.version}" in output]
        some = lacking[0] + (f" and {len(lacking) - 1} more" if lacking[1:] else "") if lacking else f"The {name} jars"
        raise CommandError(f"{some} could not be fetched: {_reason(output)}.")
    for jar in wanted:
        digest = hashlib.sha256((work / "out" / jar.file).read_bytes()).hexdigest()
        if digest != jar.sha256:
            shutil.rmtree(work)  # what Ivy keeps is wrong: fetch it afresh next time
            raise CommandError(f"{jar.file} is not what jars.txt says: its SHA-256 is {digest}, not {jar.sha256}.")
    shutil.rmtree(folder, ignore_errors=True)
    (work / "out").rename(folder)
    shutil.rmtree(work, ignore_errors=True)


def _settings(work: Path, repository: str) -> str:
    root = f" root={quoteattr(repository)}" if repository else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/>'
        f"<caches defaultCacheDir={quoteattr(str(work / 'cache'))}/>"
        f'<resolvers><ibiblio name="maven" m2compatible="true" usepoms="false"{root}/></resolvers></ivysettings>'
    )


def _module(name: str, wanted: list[Jar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default->default"/>'
        for jar in wanted
    )
    return (
        f'<ivy-module version="2.0"><info organisation="headrace" module={quoteattr(name)}/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _run_ivy(java: Java, work: Path, total: int, progress: Callable[[int], None]) -> str:
    """Run Ivy until it ends and return what it said."""
    spec = find_spec("pyspark")
    found = (
        list(Path(spec.submodule_search_locations[0]).glob("jars/ivy-*.jar"))
        if spec and spec.submodule_search_locations
        else []
    )
    if not found:
        raise CommandError("PySpark is not installed, and its Ivy is what fetches the jars.")
    options = ["-Xmx256m", "-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000"]
    if java.bundled and (trusted := authorities()):
        store = work / "trust.jks"
        store.write_bytes(jks(trusted))
        options += [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]
        options += ["-Djavax.net.ssl.trustStoreType=JKS"]
    options += proxy_options(urllib.request.getproxies())
    command = [str(java.executable), *options, "-jar", str(found[0]), "-settings", str(work / "settings.xml")]
    command += ["-ivy", str(work / "ivy.xml"), "-retrieve", str(work / "out" / "[artifact]-[revision].[ext]")]
    said: list[str] = []
    done = 0
    progress(done)
    with subprocess.Popen(
        tethered(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            said.append(line)
            if "[SUCCESSFUL ]" in line and done < total:
                done += 1
                progress(done)
    progress(total if ivy.returncode == 0 else done)
    return "".join(said)


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """Java's options for the proxies that Python would use (``https_proxy`` and its like, as `getproxies` gives them)."""
    options = []
    for scheme in ("http", "https"):
        address = urlsplit(proxies.get(scheme, ""))
        if address.hostname:
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    if options and proxies.get("no"):
        hosts = [f"*{host}" if host.startswith(".") else host for host in proxies["no"].replace(" ", "").split(",")]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _reason(output: str) -> str:
    return next((reason for pattern, reason in _FAILURES if re.search(pattern, output)), "Ivy failed without a reason")
