"""The jars, from a Maven repository on the loopback, and the bundled Java."""

from __future__ import annotations

import hashlib
import http.server
import re
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.machine import jars, java

from tests.contract.certificates import Authority


class Maven:
    """A Maven repository with fake jars. It refuses those in `missing`, and `asked` counts the requests for jars."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.missing: set[str] = set()
        self.asked: Counter[str] = Counter()
        maven = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                if name.endswith(".jar"):
                    maven.asked[name] += 1
                found = name.endswith(".jar") and name not in maven.missing
                self.send_response(200 if found else 404)
                body = content(name) if found else b""
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.address = f"{scheme}://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def content(name: str) -> bytes:
    return f"the bytes of {name}".encode()


def row(artifact: str, digest: str | None = None) -> str:
    name = f"{artifact}-1.0.jar"
    return f"demo org.example:{artifact}:1.0 {digest or hashlib.sha256(content(name)).hexdigest()}"


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maven]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository = Maven()
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, repository.address)
    yield repository
    repository.server.shutdown()


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "jars.txt"
    path.write_text("\n".join(["# jars", row("one"), row("two")]) + "\n")
    monkeypatch.setattr(jars, "LIST", path)
    return path


def test_jars_are_fetched_once_and_one_that_is_not_there_is_named(maven: Maven, listing: Path) -> None:
    maven.missing = {"two-1.0.jar"}
    with pytest.raises(CommandError, match=r"^two-1.0.jar could not be fetched: Not Found\.$"):
        jars.jars("demo")
    maven.missing = set()
    folder = jars.jars("demo")
    assert jars.jars("demo") == folder
    assert maven.asked == {"one-1.0.jar": 1, "two-1.0.jar": 2}, "it goes on with what it lacks"
    names = ("one-1.0.jar", "two-1.0.jar")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: content(name) for name in names}


@pytest.mark.usefixtures("listing")
def test_no_network_is_one_sentence(maven: Maven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, "http://127.0.0.1:1/")
    with pytest.raises(CommandError, match=r"could not be fetched: .*refused"):
        jars.jars("demo")


def test_a_wrong_checksum_is_refused_and_not_kept(maven: Maven, listing: Path) -> None:
    listing.write_text(row("one", "0" * 64))
    for _ in range(2):
        with pytest.raises(CommandError, match=r"SHA-256 is \w{64}, not 0000"):
            jars.jars("demo")
    assert maven.asked["one-1.0.jar"] == 2


def test_the_committed_list_has_all_sets_without_repetition() -> None:
    for name, least in (("kafka", 40), ("spark", 6), ("s3", 30), ("msk", 1)):
        found = jars.listed(name)
        assert len(found) >= least
        assert len({jar.file for jar in found}) == len(found)
        assert {len(jar.sha256) for jar in found} == {64}
    assert "://" not in jars.LIST.read_text()


@pytest.mark.usefixtures("listing")
def test_the_repository_is_trusted_if_python_trusts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    authority = Authority(tmp_path)
    maven = Maven(authority.server())
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, maven.address)
    with pytest.raises(CommandError, match="CERTIFICATE_VERIFY_FAILED"):
        jars.jars("demo")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    jars.jars("demo")
    maven.server.shutdown()


def test_maven_central_is_where_pyspark_has_it() -> None:
    assert re.fullmatch(r"https://[^/]+/maven2/", jars.maven_central())


def test_without_authorities_of_its_own_python_takes_those_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    monkeypatch.setenv("SSL_CERT_DIR", "/nonexistent")
    assert len(jars._trust().get_ca_certs()) > 50


def test_java_is_the_bundled_one_without_the_argument_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a folder"))
    module = "--add-modules=jdk.incubator.vector"
    assert subprocess.run([java.bundled() / "bin" / "java", module, "-version"], capture_output=True).returncode != 0
    for _ in range(2):  # the second time it is already there
        home = java.java_home.__wrapped__()
        done = subprocess.run([home / "bin" / "java", "-Dx=a b", module, "-version"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (home / "release").exists()
