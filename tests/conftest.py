"""Shared fixtures: an embedded Kafka, topics of one's own, and tests that need tools a bare machine may lack."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests import tiers
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics

os.environ["PATH"] += f"{os.pathsep}{Path(__file__).parents[1] / '.tools' / 'bin'}"  # release/tools.sh puts them there


TOOLS: Final = {
    "java": "java -version", "go": "go version", "npm": "npm --version", "maven": "mvn --version", "docker": "docker info",
    "compose": "docker compose version", "helm": "helm version",
    "kubeconform": "kubeconform -v", "chromium": "chromium --version", "promtool": "promtool --version",
    "actionlint": "actionlint -version", "zizmor": "zizmor --version", "cargo": "cargo --version",
    "k8s": "kubectl version --request-timeout=10s", "node": "kubectl version --request-timeout=10s",
    "rsyslog": "dpkg -s rsyslog-relp rsyslog-gnutls rsyslog-openssl", "syslog-ng": "syslog-ng --version",
}  # fmt: skip
"""What a test may require, and what it answers if it is there."""


@lru_cache
def has(tool: str) -> bool:
    """A cluster counts only if HEADRACE_TEST_CLUSTER says that tests may use the current context: `api` for an API server without
    nodes, `node` for a cluster whose nodes have the images. Two minutes, because a busy machine must not seem to lack a tool.
    """
    cluster = os.environ.get("HEADRACE_TEST_CLUSTER", "")
    if (tool == "k8s" and not cluster) or (tool == "node" and cluster != "node"):
        return False
    try:
        return subprocess.run(TOOLS[tool].split(), capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default="",
        metavar="TOOLS",
        help=f"a test that lacks one of these fails instead of being skipped; of {','.join(TOOLS)}",
    )
    parser.addoption(
        "--tier",
        default=tiers.Tier.ALL.value,
        choices=[tier.value for tier in tiers.Tier],
        help="quick leaves out what is marked `long` or `full`, all (the default) what is marked `full`",
    )


STRICT: Final = re.compile(
    r"tests/((faults|fuzz|simulation)/|system/test_promise_|lake/test_(kills|model)\.|logjam/test_losses\.)"
)
"""Files whose tests are never run once more: one that fails has seen the promise broken, or is made of a seed."""


def pytest_configure(config: pytest.Config) -> None:
    tier = tiers.Tier(config.getoption("--tier"))
    tiers.choose(tier)
    marks = (config.option.markexpr, tiers.MARKS[tier])
    config.option.markexpr = " and ".join(f"({each})" for each in marks if each)
    # Started in the background, or by a program that holds it: what a test starts would not get a Ctrl-C either.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    unknown = required(config) - TOOLS.keys()
    if unknown:
        raise pytest.UsageError(f"--require: {', '.join(sorted(unknown))} is none of {', '.join(TOOLS)}")


def required(config: pytest.Config) -> set[str]:
    return {name.strip() for name in config.getoption("--require").split(",") if name.strip()}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: the garbage collector need not look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # libraries look for leaks when the process ends; pytest itself would before
        gc.enable()


@pytest.hookimpl(trylast=True)  # what the tier leaves out is gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives what starts Spark its time, and the first place; then come Kafka and other long files: all should end together."""
    ranks: dict[Path, int] = {}
    for item in items:
        if STRICT.match(item.nodeid):
            item.add_marker(pytest.mark.flaky(reruns=0))
        spark = item.get_closest_marker("spark")
        if spark and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIME))
        early = item.get_closest_marker("kafka") or item.nodeid.startswith((SIMULATION, HISTORIES, LONG_EVENTS))
        rank = 0 if spark else 1 if early else 2
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


SPARK_TIME: Final = 1500
"""Seconds for a test with Spark. Not a guess about speed: each wait ends as soon as it can, and fails before this."""

SPARK_SHARED: Final = "tests/lake"
"""Its tests share one Spark, if one worker runs them all: the first batch of a new JVM costs as much as ten later ones."""
SPARK_APART: Final = ("test_s3.py", "test_query.py", "test_settings.py", "test_model.py")
"""Files in that folder whose tests start processes of their own, or none."""
SPARK_SECOND: Final = ("test_damage.py", "test_erase.py", "test_maintenance.py", "test_tables.py")
"""Files in that folder that share a second Spark, in another worker: about half of what all take."""

SIMULATION: Final = "tests/simulation/"
SEEDS: Final = f"{SIMULATION}test_simulation.py"
"""Its tests share nothing, and take minutes: each protocol's may be another worker's."""
HISTORIES: Final = "tests/lake/test_model.py"
LONG_EVENTS: Final = "tests/test_long_events.py"

CONTRACT: Final = "tests/contract"
"""Its tests share a receiver of each protocol."""

SPARK_QUICK: Final = "tests/lake/test_decode.py"
"""The one file that starts Spark in the quick tier."""


@lru_cache
def on_kafka(file: str) -> bool:
    return "mark.kafka" in (Path(__file__).parents[1] / file).read_text()


def scope_of(nodeid: str) -> str:
    """What one worker runs as a whole: a file, all files that share a Spark or receivers, one protocol's seeds, or in the quick
    tier all others that share a broker. To start one costs as much as many of them; in other tiers each worker has one anyhow.
    """
    file, _, test = nodeid.partition("::")
    if file == SEEDS:
        return f"{file} {test.partition('-')[0]}"
    folder, _, name = file.rpartition("/")
    if folder == CONTRACT:
        return folder
    if tiers.chosen() is tiers.Tier.QUICK and file != SPARK_QUICK and on_kafka(file):
        return "kafka"
    if folder != SPARK_SHARED or name in SPARK_APART:
        return file
    return f"{folder} 2" if name in SPARK_SECOND else folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Two workers run what shares Spark. At a night's sizes all share it, file by file."""
    if config.getoption("dist") != "loadfile" or tiers.chosen() is tiers.Tier.FULL:
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSpark(LoadFileScheduling):  # type: ignore[misc] # a library without types
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return OneSpark(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_sep("_", f"failed, and was run once more: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            if not has(name):
                verdict = pytest.fail if name in required(item.config) else pytest.skip
                verdict(f"needs {name}, which this machine lacks")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Fails a test that leaves aiokafka silent or SIGINT held in this process: tests behind it wait for either."""
    yield
    assert logging.getLogger("aiokafka").isEnabledFor(logging.WARNING)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker for the whole session: use topics of your own (`topics`), and don't stop it."""
    soon = {"log.cleaner.backoff.ms": "100"}  # compaction, where a test asks for it
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), properties=soon) as broker:
        yield broker


@pytest.fixture
def topics(kafka: EmbeddedKafka) -> KafkaSettings:
    """Settings for the session's broker with topics that no other test uses."""
    return own_topics(kafka.bootstrap)
