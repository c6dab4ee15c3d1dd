"""The jars of Kafka and of the landing job, and the Java that runs them.

``jars.txt`` beside this module lists the jars; each one is checked against its SHA-256. PySpark contains Ivy, which fetches them
from Maven Central, so nothing else has to be installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from warnings import catch_warnings
from xml.sax.saxutils import quoteattr

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from headrace_cli.ground import CommandError, cache
from headrace_cli.machine.filelock import locked
from headrace_cli.machine.java import Java, find_java
from headrace_cli.machine.tether import tethered

LIST: Final = Path(__file__).with_name("jars.txt")
REPOSITORY_VARIABLE: Final = "HEADRACE_MAVEN_REPOSITORY"
"""Environment variable with the address of a Maven repository that replaces Maven Central."""

FetchProgress = Callable[[str, int, int], None]
"""Called with what is fetched, how many are there already, and how many are wanted."""

_FAILURES: Final = (
    (r"No space left on device", "the disk is full"),
    (r"PKIX path building failed|SSLHandshakeException", "this machine does not trust the repository's certificate"),
    (r"UnknownHostException|ConnectException|SocketTimeoutException|NoRouteToHost|SocketException", "no network"),
    (r"UNRESOLVED DEPENDENCIES|not found", "the repository lacks it or cannot be reached"),
)

PASSWORD: Final = "headrace"  # noqa: S105  (the store holds public certificates)


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
    """Return the JAVA_HOME for programs that start Java. Raises `CommandError`."""
    return find_java().home


def listed(name: str) -> list[Jar]:
    """Return the jars of the set `name` in ``jars.txt``. Raises `CommandError` for a malformed line or an unknown set."""
    found = []
    for line in LIST.read_text().splitlines():
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


def jars(name: str, progress: FetchProgress | None = None) -> Path:
    """Return a folder with exactly the jars of the set `name` (``kafka``, ``spark``, ``s3``, ``msk``); fetch what is missing.

    The first call may block for minutes. Two processes may call it at once. After an interruption it fetches only the jars
    that are still missing. Raises `CommandError` (no network, no disk, a wrong checksum).
    """
    wanted = listed(name)
    key = hashlib.sha256("\n".join(map(repr, wanted)).encode()).hexdigest()[:16]
    folder = cache() / "jars" / f"{name}-{key}"
    if _is_complete(folder, wanted):
        return folder
    report = progress or (lambda what, done, total: None)
    try:
        folder.parent.mkdir(exist_ok=True)
        with locked(
            folder.with_suffix(".lock"),
            lambda: report(f"{name} jars: waiting for another process that fetches them", 0, 0),
        ):
            if not _is_complete(folder, wanted):
                _fetch(name, wanted, folder, report)
    except OSError as error:
        raise CommandError(f"The {name} jars cannot be stored in {folder.parent}: {error.strerror}.") from error
    return folder


def copy_jars(folder: Path, into: Path) -> None:
    """Copy the jars of `folder`, which `jars` returned, to the folder `into`. Raises `CommandError`."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        for jar in sorted(folder.glob("*.jar")):
            shutil.copyfile(jar, into / jar.name)
    except OSError as error:
        raise CommandError(f"The jars cannot be copied to {into}: {error.strerror}.") from error


def class_path(name: str, progress: FetchProgress | None = None) -> str:
    """Return a Java class path of the jars of the set `name`. Fetches, blocks and raises like `jars`."""
    return str(jars(name, progress) / "*")


def _is_complete(folder: Path, wanted: list[Jar]) -> bool:
    """Whether `folder` has all jars. One rename creates it, so it is complete unless somebody has deleted files."""
    return all((folder / jar.file).is_file() for jar in wanted)


def _fetch(name: str, wanted: list[Jar], folder: Path, report: FetchProgress) -> None:
    work = folder.with_suffix(".part")  # Ivy keeps its own cache in it, which survives an interruption
    shutil.rmtree(work / "out", ignore_errors=True)
    work.mkdir(exist_ok=True)
    java = find_java()
    (work / "settings.xml").write_text(_ivy_settings(work, os.environ.get(REPOSITORY_VARIABLE, "")))
    (work / "ivy.xml").write_text(_ivy_module(name, wanted))
    output = _run_ivy(java, work, len(wanted), lambda done: report(f"{name} jars", done, len(wanted)))
    if not _is_complete(work / "out", wanted):
        # Ivy delivers nothing if one jar is missing, but keeps what it has fetched for the next time
        lacking = [jar.file for jar in wanted if f"not found: {jar.group}#{jar.artifact};{jar.version}" in output]
        some = lacking[0] + (f" and {len(lacking) - 1} more" if lacking[1:] else "") if lacking else f"The {name} jars"
        raise CommandError(f"{some} could not be fetched: {_failure_reason(output)}.")
    for jar in wanted:
        digest = hashlib.sha256((work / "out" / jar.file).read_bytes()).hexdigest()
        if digest != jar.sha256:
            shutil.rmtree(work)  # Ivy's cache holds the wrong file: the next call fetches it again
            raise CommandError(f"{jar.file} differs from jars.txt: its SHA-256 is {digest}, not {jar.sha256}.")
    shutil.rmtree(folder, ignore_errors=True)
    (work / "out").rename(folder)
    shutil.rmtree(work, ignore_errors=True)


def _ivy_settings(work: Path, repository: str) -> str:
    root = f" root={quoteattr(repository)}" if repository else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/>'
        f"<caches defaultCacheDir={quoteattr(str(work / 'cache'))}/>"
        f'<resolvers><ibiblio name="maven" m2compatible="true" usepoms="false"{root}/></resolvers></ivysettings>'
    )


def _ivy_module(name: str, wanted: list[Jar]) -> str:
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
    """Run Ivy to its end and return its output."""
    spec = find_spec("pyspark")
    found = (
        list(Path(spec.submodule_search_locations[0]).glob("jars/ivy-*.jar"))
        if spec and spec.submodule_search_locations
        else []
    )
    if not found:
        raise CommandError("PySpark is not installed, and its Ivy has to fetch the jars.")
    options = ["-Xmx256m", "-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000"]
    # a Java of this machine trusts what the machine's Java was told to, unless the user names the authorities
    if (java.bundled or "SSL_CERT_FILE" in os.environ) and (trusted := authorities()):
        store = work / "trust.p12"
        store.write_bytes(trust_store(trusted))
        options += [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]
        options += ["-Djavax.net.ssl.trustStoreType=PKCS12"]
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
    """Return Java's options for the proxies that Python uses: `proxies` as from `getproxies` (``https_proxy`` and so on)."""
    options = []
    for scheme in ("http", "https"):
        address = urlsplit(proxies.get(scheme, ""))
        if address.hostname:
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    if options and proxies.get("no"):
        hosts = [f"*{host}" if host.startswith(".") else host for host in proxies["no"].replace(" ", "").split(",")]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _failure_reason(output: str) -> str:
    return next((reason for pattern, reason in _FAILURES if re.search(pattern, output)), "Ivy failed without a reason")


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


def trust_store(certificates: list[bytes]) -> bytes:
    """Return a PKCS12 store that Java takes for one of authorities (DER). Its password is `PASSWORD`."""
    entries = []
    for number, certificate in enumerate(certificates):
        with (
            suppress(ValueError),
            catch_warnings(action="ignore"),
        ):  # OpenSSL reads certificates that are none by the letter
            name = f"ca{number}".encode()
            entries.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(certificate), name))
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(PASSWORD.encode()))
