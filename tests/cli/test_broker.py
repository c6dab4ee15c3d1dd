"""The embedded broker, run as a process."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import psutil
import pytest
from aiokafka.structs import TopicPartition
from headrace_cli.ground import CommandError
from headrace_cli.stack.broker import message
from headrace_common.kafka.record_batch import builder_of

from tests.common.kafkaless import event
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics, produce
from tests.contract.waiting import PATIENCE

MIB = 1024 * 1024
pytestmark = pytest.mark.kafka


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_folder_may_have_any_name_and_libraries_come_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(CommandError, match=r"could not be formatted|stopped at its start"):
        broker.start(timeout=PATIENCE)
    assert not broker.running
