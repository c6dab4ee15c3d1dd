"""The jars, from a Maven repository that is a folder, the bundled Java, and the broker that both make."""

from __future__ import annotations

import asyncio
import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from aiokafka.structs import TopicPartition
from headrace_cli.ground import CommandError, cache
from headrace_cli.machine import jars, java
from headrace_cli.stack.broker import message
from headrace_common.kafka.record_batch import builder_of

from tests.common.kafkaless import event
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics, produce

NAMES = ("one", "two")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a repository has two jars, of which the set `demo` is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, (tmp_path / "maven").as_uri())
    monkeypatch.setattr(jars, "LIST", tmp_path / "jars.txt")
    rows = ["# jars"]
    for name in NAMES:
        file = tmp_path / "maven" / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"
        file.parent.mkdir(parents=True)
        file.write_text(name)
        rows.append(f"demo org.example:{name}:1.0 {hashlib.sha256(name.encode()).hexdigest()}")
    jars.LIST.write_text("\n".join(rows) + "\n")
    return tmp_path / "maven" / "org" / "example"


def test_jars_are_fetched_once_and_a_missing_one_is_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = repository / "two" / "1.0" / "two-1.0.jar"
    second.rename(repository / "kept")
    with pytest.raises(CommandError, match=r"^two-1.0.jar could not be fetched: .*No such file"):
        jars.jars("demo")
    (repository / "kept").rename(second)
    assert capsys.readouterr().err == "fetching 2 demo jars\n"
    folder = jars.jars("demo")
    assert jars.jars("demo") == folder
    assert capsys.readouterr().err == "fetching 1 demo jars\n", "it goes on with what it lacks"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {f"{name}-1.0.jar": name for name in NAMES}


def test_a_wrong_checksum_is_refused_and_not_kept(repository: Path) -> None:
    (repository / "one" / "1.0" / "one-1.0.jar").write_text("another")
    for _ in range(2):
        with pytest.raises(CommandError, match=r"SHA-256 is \w{64}, not \w{64}"):
            jars.jars("demo")


def test_the_committed_list_has_all_sets_without_repetition() -> None:
    for name, least in (("kafka", 40), ("spark", 6), ("s3", 30), ("msk", 1)):
        found = jars.listed(name)
        assert len(found) >= least
        assert len({jar.file for jar in found}) == len(found)
        assert {len(jar.sha256) for jar in found} == {64}
    assert "://" not in jars.LIST.read_text()


def test_maven_central_is_pysparks_and_trusted_as_by_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"https://[^/]+/maven2/", jars.maven_central())
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    monkeypatch.setenv("SSL_CERT_DIR", "/nonexistent")
    assert len(jars._trust().get_ca_certs()) > 50


def test_the_bundled_java_gets_no_argument_unknown_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a folder"))
    (cache() / "java").mkdir()  # of another Java
    module = "--add-modules=jdk.incubator.vector"
    assert subprocess.run([java.bundled() / "bin" / "java", module, "-version"], capture_output=True).returncode != 0
    for _ in range(2):  # the second time it is already there
        home = java.java_home.__wrapped__()
        done = subprocess.run([home / "bin" / "java", "-Dx=a b", module, "-version"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (home / "release").exists()
        assert (home / "bin" / "java").stat().st_mode & 0o777 == 0o755


pytestmark = pytest.mark.kafka


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_libraries_come_from_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing in /tmp may be executed, it had no zstd, and stored nothing."""
    monkeypatch.setenv("LC_ALL", "C")  # the user's, which knows ASCII only
    with EmbeddedKafka(tmp_path / "données, \\ d'été=1 💾") as broker:
        assert (broker.folder / "data" / "meta.properties").exists()
        settings = own_topics(broker.bootstrap)
        batch = builder_of([(event(0), time.time_ns() // 1_000_000)])
        asyncio.run(produce(settings, TopicPartition(settings.events_topic, 0), batch))
        loaded = [found.path for found in psutil.Process(broker.pid).memory_maps() if "libzstd" in found.path]
        assert loaded
        assert all(path.startswith(str(broker.folder / "tmp")) for path in loaded)


def test_a_java_error_is_its_message() -> None:
    said = (
        'Exception in thread "main" java.lang.RuntimeException: wrapped\n\tat kafka.A.b(A.scala:1)\n'
        "Caused by: java.io.IOException: No space left on device\n\tat kafka.tools.StorageTool.main\n\t... 3 more\n"
    )
    assert message(said) == "Caused by: java.io.IOException: No space left on device"
    assert message("") == ""
    assert message('before\n{"event":"stopped"}\n\n') == '{"event":"stopped"}'


def test_a_broker_that_cannot_start_is_noticed_at_once(tmp_path: Path) -> None:
    broker = EmbeddedKafka(tmp_path / "kafka", properties={"num.io.threads": "none"})
    with pytest.raises(CommandError, match="stopped at its start"):
        broker.start()
    assert not broker.running
