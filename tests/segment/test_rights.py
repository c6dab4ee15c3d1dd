"""Who may seal and truncate segments."""

from __future__ import annotations

import pytest
from headrace_common.session.interface import Peer
from headrace_segment.session.conversation import SegmentSession
from headrace_segment.settings import SegmentSection
from headrace_segment.wire import messages as said

from tests.segment.instant import LIMITS, InstantStore
from tests.segment.speaking_today import HELLO, REQUEST, create, info, read, seal, setup, truncate
from tests.segment.test_today_session import Talk

HERE, AWAY = Peer("127.0.0.1", 1, "127.0.0.1"), Peer("192.0.2.7", 1, "192.0.2.7")
BILLING = Peer("192.0.2.7", 1, "CN=billing", certified=True)


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ([], []),
        (["CN=billing"], [BILLING]),
        (["192.0.2.0/24"], [AWAY, BILLING]),
        (["127.0.0.1", "CN=other"], [HERE]),
        (["0.0.0.0/0"], [HERE, AWAY, BILLING]),
    ],
)
def test_who_may_destroy(given: list[str], allowed: list[Peer]) -> None:
    """An address that looks like a subject is none, nor is a subject that no certificate has shown."""
    section = SegmentSection.model_validate({"may_destroy": given})
    others = [Peer("192.0.3.7", 1, "CN=billing"), Peer("2001:db8::1", 1, "192.0.2.7", certified=True)]
    known = [HERE, AWAY, BILLING, *others]
    if "0.0.0.0/0" in given:
        allowed = [*allowed, others[0]]
    assert [peer for peer in known if section.lets_destroy(peer)] == allowed


def test_who_may_not_hears_so_and_nothing_changes() -> None:
    store = InstantStore()
    away = Talk(store, peer=AWAY)
    away.session = SegmentSession(AWAY, LIMITS)
    away.hear(HELLO)
    assert away.says(create()) == [said.SegmentCreated(REQUEST, "a")]
    asked = {"type 28": seal(), "type 38": truncate(0)}
    for name, request in asked.items():
        assert away.says(request) == [said.OperationUnsupported(REQUEST, name)]
    assert store.fold.segments["a"].sealed is False
    assert away.outcome.error is None
    assert len(away.says(setup(), read(), info())) == 3
