"""Shared fixtures: an embedded Kafka, topics of one's own, and tests that need tools a bare machine may lack."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests import tiers
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics

os.environ["PATH"] += f"{os.pathsep}{Path(__file__).parents[1] / '.tools' / 'bin'}"  # release/tools.sh puts them there


def _answers(*command: str) -> bool:
    """Whether a program is there and does what it is asked. Two minutes, because a busy machine must not seem to lack it."""
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@lru_cache
def has(tool: str) -> bool:
    return TOOLS[tool]()


TOOLS: dict[str, Callable[[], bool]] = {
    "java": lambda: _answers("java", "-version"),
    "go": lambda: _answers("go", "version"),
    "npm": lambda: _answers("npm", "--version"),
    "maven": lambda: shutil.which("mvn") is not None,
    "docker": lambda: _answers("docker", "info"),
    "systemd": lambda: shutil.which("systemd-analyze") is not None,
    "compose": lambda: _answers("docker", "compose", "version"),
    "helm": lambda: _answers("helm", "version"),
    "kubeconform": lambda: _answers("kubeconform", "-v"),
    "chromium": lambda: _answers("chromium", "--version"),
    "promtool": lambda: _answers("promtool", "--version"),
    "actionlint": lambda: _answers("actionlint", "-version"),
    "zizmor": lambda: _answers("zizmor", "--version"),
    "k8s": lambda: "HEADRACE_TEST_CLUSTER" in os.environ and _answers("kubectl", "version", "--request-timeout=10s"),
    "cargo": lambda: _answers("cargo", "--version"),
    "node": lambda: os.environ.get("HEADRACE_TEST_CLUSTER") == "node" and has("k8s"),
}
"""What a test may require, and how to see that it is there. A cluster counts only if HEADRACE_TEST_CLUSTER says that tests
may use the current context: `api` for an API server without nodes, `node` for a cluster whose nodes have the images.
"""


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


TESTS: Final = Path(__file__).parent

STRICT: Final = re.compile(
    r"(faults|fuzz|simulation)/|system/test_promise_|lake/test_(kills|model)\.|logjam/test_losses\."
)
"""Files whose tests are never run once more: one that fails has seen the promise broken, or is made of a seed."""

LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    tiers.choose(tiers.Tier(config.getoption("--tier")))
    config.stash[LEFT_OUT] = {}
    # Started in the background, or by a program that holds it: what a test starts would not get a Ctrl-C either.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    unknown = required(config) - TOOLS.keys()
    if unknown:
        raise pytest.UsageError(f"--require: {', '.join(sorted(unknown))} is none of {', '.join(TOOLS)}")


def required(config: pytest.Config) -> set[str]:
    return {name.strip() for name in config.getoption("--require").split(",") if name.strip()}


@pytest.hookimpl(trylast=True)  # a folder's own hook may mark its tests first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects, visibly, what does not belong to the tier. What starts Spark has its time."""
    for item in items:
        if item.path.is_relative_to(TESTS) and STRICT.match(str(item.path.relative_to(TESTS))):
            item.add_marker(pytest.mark.flaky(reruns=0))
        if " at 0x" in item.nodeid:  # an address differs from worker to worker, and then pytest-xdist runs nothing
            raise pytest.UsageError(f"give its parameters ids: {item.nodeid}")
        if item.get_closest_marker("spark") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIME))
    left_out = {
        item for item in items if not tiers.runs(tiers.chosen(), {marker.name for marker in item.iter_markers()})
    }
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    config.stash[LEFT_OUT] = dict(Counter(folder_of(item) for item in left_out))
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.stash[LEFT_OUT]
        ranks = file_ranks(items)
        items.sort(key=lambda item: ranks[item.path])


def file_ranks(items: list[pytest.Item]) -> dict[Path, int]:
    """Files that start Spark come first, then those that use Kafka, seeds and histories: workers should end together."""
    ranks: dict[Path, int] = {}
    for item in items:
        early = item.get_closest_marker("kafka") or item.nodeid.startswith((SEEDS, HISTORIES))
        rank = 0 if item.get_closest_marker("spark") else 1 if early else 2
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    return ranks


SPARK_TIME: Final = 1500
"""Seconds for a test with Spark. Not a guess about speed: each wait ends as soon as it can, and fails before this."""

SPARK_SHARED: Final = "tests/lake"
"""Its tests share one Spark, if one worker runs them all: the first batch of a new JVM costs as much as ten later ones."""
SPARK_APART: Final = ("test_s3.py", "test_query.py", "test_settings.py", "test_model.py")
"""Files in that folder whose tests start processes of their own, or none."""
SPARK_SECOND: Final = ("test_damage.py", "test_erase.py", "test_maintenance.py", "test_tables.py")
"""Files in that folder that share a second Spark, in another worker: about half of what all take."""


SEEDS: Final = "tests/simulation/test_simulation.py"
"""Its tests share nothing, and take minutes: each protocol's may be another worker's."""
HISTORIES: Final = "tests/lake/test_model.py"


def scope_of(nodeid: str) -> str:
    """What one worker runs as a whole: a file, all files that share a Spark, or one protocol's seeds."""
    file, _, test = nodeid.partition("::")
    if file == SEEDS:
        return f"{file} {test.partition('-')[0]}"
    folder, _, name = file.rpartition("/")
    if folder != SPARK_SHARED or name in SPARK_APART:
        return file
    return f"{folder} 2" if name in SPARK_SECOND else folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of two to four workers, two run what shares Spark. More workers, or a night's sizes, share it file by file."""
    if (
        config.getoption("dist") != "loadfile"
        or len(config.getoption("tx")) not in (2, 3, 4)
        or tiers.chosen() is tiers.Tier.FULL
    ):
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSpark(LoadFileScheduling):  # type: ignore[misc] # a library without types
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return OneSpark(config, log)


def folder_of(item: pytest.Item) -> str:
    """Its folder in tests/, or the module that lies there itself."""
    return item.path.relative_to(TESTS).parts[0].removesuffix(".py")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended: the workers collect, each of them everything."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how long the tests of each folder took, shared by the workers, and how many of each the tier has left out."""
    seconds: dict[str, float] = defaultdict(float)
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport):
            folder, _, _ = report.nodeid.removeprefix("tests/").partition("::")[0].partition("/")
            seconds[folder.removesuffix(".py")] += report.duration
    share = 60 * max(1, len(config.getoption("tx", None) or ()))
    minutes = ", ".join(f"{folder} {took / share:.1f}" for folder, took in sorted(seconds.items()))
    if seconds:
        terminalreporter.write_line(f"minutes: {minutes}")
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_sep("_", f"failed, and was run once more: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    if left_out := config.stash[LEFT_OUT]:
        folders = ", ".join(f"{folder} {count}" for folder, count in sorted(left_out.items()))
        more = "--all" if tiers.chosen() is tiers.Tier.QUICK else "--full"
        terminalreporter.write_line(f"left out: {sum(left_out.values())} ({folders}), which {more} runs, too")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            if name not in TOOLS:
                pytest.fail(f"requires({name!r}): it is none of {', '.join(TOOLS)}", pytrace=False)
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
def own_kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """A broker for one test: it may be stopped, killed and started again."""
    with EmbeddedKafka(tmp_path / "kafka") as broker:
        yield broker


@pytest.fixture
def topics(kafka: EmbeddedKafka) -> KafkaSettings:
    """Settings for the session's broker with topics that no other test uses."""
    return own_topics(kafka.bootstrap)
