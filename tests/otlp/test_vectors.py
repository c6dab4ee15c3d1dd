"""What OpenTelemetry's SDKs really sent: of Python 1.45.2, of Go 0.19.0, and of JavaScript 0.223.1, in protobuf and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.otlp.driving import every_way

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.bin"))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name)
def test_a_capture_is_stored_and_answered(path: Path) -> None:
    outcome = every_way(path.read_bytes())
    assert outcome.error is None
    assert outcome.statuses == [200]
    assert not outcome.rejects
    assert {event.subject for event in outcome.events} == {"shop"}
    assert len({event.id for event in outcome.events}) == len(outcome.events)
    # JavaScript's clock has milliseconds: it may say the same twice at one time.
    assert {event.id[:2] for event in outcome.events} == {"u." if path.name.startswith("js") else "d."}
    first, second = (event.json for event in outcome.events[:2])
    assert (first["body"], first["scope"]["name"]) == ("one – ü", "cart")
    if path.name.startswith("python"):
        assert second["attributes"] == {**second["attributes"], "n": 2**60, "f": 1.5, "list": ["a", "b"]}
        assert {event.source for event in outcome.events} == {"/otlp/web-1"}
    else:
        assert first["attributes"] == {"n": 3, "f": 1.5, "list": ["a", "b"], "map": {"deep": True}}
        assert (second["body"], second["eventName"], second["attributes"]) == (
            {"a": [1, None]},
            "ordered",
            {"bytes": "AP8="},
        )
        assert {event.source for event in outcome.events} == {"/otlp/web-2"}
