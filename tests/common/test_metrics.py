"""The catalogue: names, units, and that each says what to conclude."""

from __future__ import annotations

import re

import pytest
from headrace_common.event import Reason
from headrace_common.metrics import Catalogue, ReceiverMetrics


def test_every_name_has_the_prefix_and_a_meaning() -> None:
    metrics = ReceiverMetrics()
    rows = metrics.table()
    assert len(rows) > 20
    for name, kind, meaning in rows:
        assert re.fullmatch(r"headrace_[a-z_]+", name)
        assert meaning.endswith((".", ").")), name
        assert name.endswith("_total") is (kind == "counter"), name
    assert len({name for name, _, _ in rows}) == len(rows)


def test_base_units() -> None:
    for name, _, _ in ReceiverMetrics().table():
        assert not re.search(r"_(ms|milliseconds|kb|mb|minutes)(_|$)", name), name


def test_every_metric_is_in_the_table() -> None:
    metrics = ReceiverMetrics()
    names = {name.removesuffix("_total") for name, _, _ in metrics.table()}
    own = {
        f"headrace_{metric._name}".replace("headrace_headrace_", "headrace_")
        for metric in vars(metrics).values()
        if hasattr(metric, "_name")
    }
    assert own
    assert own <= names


def test_every_reason_is_there_from_the_start() -> None:
    """So that a rate of it can be computed when the first one comes."""
    text = ReceiverMetrics().exposition().decode()
    for reason in Reason:
        assert f'headrace_events_quarantined_total{{reason="{reason.value}"}} 0.0' in text


def test_two_catalogues_do_not_mix() -> None:
    first, second = ReceiverMetrics(), ReceiverMetrics()
    first.events_stored.inc(3)
    assert "headrace_events_stored_total 3.0" in first.exposition().decode()
    assert "headrace_events_stored_total 0.0" in second.exposition().decode()


def test_a_name_is_declared_once() -> None:
    catalogue = Catalogue()
    catalogue.counter("things", "Things.")
    with pytest.raises(ValueError, match="Duplicated"):
        catalogue.gauge("things_total", "Things.")
