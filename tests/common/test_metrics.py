"""The catalogue: names, units, and that each says what to conclude."""

from __future__ import annotations

import re

import pytest
from headrace_common.operations.metrics import Catalogue, ReceiverMetrics
from headrace_common.record.contract import Reason


def test_every_name_has_the_prefix_and_a_meaning() -> None:
    metrics = ReceiverMetrics()
    rows = metrics.table()
    assert len(rows) > 20
    for name, kind, meaning, _, _ in rows:
        assert re.fullmatch(r"headrace_[a-z_]+", name)
        assert meaning.endswith((".", ").")), name
        assert name.endswith("_total") is (kind == "counter"), name
    assert len({row.name for row in rows}) == len(rows)


def test_base_units() -> None:
    for name, *_ in ReceiverMetrics().table():
        assert not re.search(r"_(ms|milliseconds|kb|mb|minutes)(_|$)", name), name


def test_every_metric_is_in_the_table() -> None:
    metrics = ReceiverMetrics()
    names = {name.removesuffix("_total") for name, *_ in metrics.table()}
    own = {
        f"headrace_{metric._name}".replace("headrace_headrace_", "headrace_")
        for metric in vars(metrics).values()
        if hasattr(metric, "_name")
    }
    assert own
    assert own <= names


def test_the_table_says_what_prometheus_gets() -> None:
    """Kinds, labels and buckets as the client library itself has them."""
    metrics = ReceiverMetrics()
    families = {family.name: family for family in metrics.registry.collect()}
    for row in metrics.table():
        family = families[row.name.removesuffix("_total")]
        assert family.type == row.kind
        assert family.documentation == row.meaning
        assert bool(row.buckets) is (row.kind == "histogram")
        if row.kind == "histogram":
            bounds = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
            assert [float(bound) for bound in bounds[:-1]] == list(row.buckets)
        else:
            assert all(tuple(sample.labels) == row.labels for sample in family.samples)


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
