"""The waits that an operator finds in the runbook are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_common.kafka import producer
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing import delivery, pump

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbooks.md"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a request to a broker", f"`KAFKA__REQUEST_TIMEOUT` ({KafkaSettings().request_timeout:g} s)"),
        ("a request to a broker", f"a new connection, {delivery.RETRY_PAUSE:g} s later"),
        ("a batch, however often", f"{delivery.SILENCE_TIME:g} s"),
        ("a producer that is replaced", f"{3 * producer.CLOSE_TIME:g} s"),  # its end, its connections, its sender
        ("the topics' settings", f"{producer.FIRST_PAUSE:g} s later, then {2 * producer.FIRST_PAUSE:g} s"),
        ("the topics' settings", f"up to {producer.LAST_PAUSE:g} s"),
        (
            "a producer that comes after one",
            f"{producer.FIRST_PAUSE:g} s, then {2 * producer.FIRST_PAUSE:g} s, up to {producer.LAST_PAUSE:g} s",
        ),
        ("a partition without a leader", f"{2 * producer.LEADER_PAUSE:g} s"),
        ("what is kept", f"{pump.AGAIN:g} s"),
        ("a frame", f"`KAFKA__ACK_DEADLINE` ({KafkaSettings().ack_deadline:g} s)"),
    ],
)
def test_the_runbook_names_the_waits_of_the_code(what: str, said: str) -> None:
    (row,) = [line for line in RUNBOOK.read_text().splitlines() if line.startswith(f"| {what}")]
    assert said in row
