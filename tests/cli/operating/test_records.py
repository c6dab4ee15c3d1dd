"""What `tap` and `quarantine` say of a record is what the landing job does with it: both judge the same records."""

from __future__ import annotations

import pytest
from headrace_cli.operating.records import Kept, event, pretty
from headrace_common.record.contract import RecordFault

from tests.lake.records import Record
from tests.lake.test_decode import FAULTY, SOUND


def kept(record: Record) -> Kept:
    return Kept("headrace.events", 0, 0, 0, record.headers or [], record.value)


@pytest.mark.parametrize("name", FAULTY)
def test_a_record_that_the_landing_job_quarantines(name: str) -> None:
    record, fault, _ = FAULTY[name]
    row = event(kept(record))
    assert row["fault"] is fault
    assert pretty(row).plain  # it is shown all the same


@pytest.mark.parametrize("name", SOUND)
def test_a_record_that_lands(name: str) -> None:
    assert "fault" not in event(kept(SOUND[name]))


def test_every_fault_of_a_record_is_among_them() -> None:
    assert {fault for _, fault, _ in FAULTY.values()} == set(RecordFault)
