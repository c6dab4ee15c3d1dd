"""Writers, replicas and breaking connections, all through real bytes: nothing is lost, doubled or out of its order."""

from __future__ import annotations

import pytest

from tests.segment.fleet import run, stored
from tests.segment.speaking import events
from tests.tiers import sized

FLEETS = sized(8, 20, 200)


@pytest.mark.parametrize("seed", range(FLEETS))
def test_every_event_is_stored_once_in_its_order(seed: int) -> None:
    fleet = run(seed)
    segments, writers = stored(fleet)
    for client in fleet.clients:
        assert client.done
        assert writers[client.writer] == events(*client.data)
    assert sum(map(len, segments.values())) == sum(map(len, writers.values()))
    for replica in fleet.replicas:
        assert {name: each.length for name, each in replica.fold.segments.items()} == {
            name: len(data) for name, data in segments.items()
        }


def test_the_events_topic_has_what_the_segments_have() -> None:
    """Some of it more than once, with the same name and bytes, and so with the same id, also if event numbers skip."""
    doubled = 0
    for seed in range(5):
        fleet = run(seed)
        expected = {
            (client.segment, client.writer, name, data)
            for client in fleet.clients
            for name, data in zip(client.names(), client.data, strict=True)
        }
        assert set(fleet.topic) == expected
        doubled += len(fleet.topic) - len(expected)
    assert doubled
