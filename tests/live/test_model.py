"""What a row of looks says, and what the page says of it in words."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import Any

import orjson
import pytest
from headrace_cli.operating.exposition import Scrape
from headrace_common.operations.metrics import TOP_SOURCES
from headrace_live.looks import Figures, GapTotal, Look, PartitionLook, TablesLook
from headrace_live.model import SPAN, Model
from headrace_live.service import _plain, document
from headrace_live.words import BAD, GOOD, WATCH, verdict

from tests.contract.waiting import there
from tests.live.seen import INF, UNIX, Labelled, away, kafka, lake, look, quarantined, receiver
from tests.test_docs import ROOT, anchors, take


def last(*looks: Any) -> Figures:
    model = Model()
    return [model.add(each) for each in looks][-1]


class TestFigures:
    def test_replicas_are_added_up_over_the_window(self) -> None:
        figures = last(
            look(0, receiver(0, 100), receiver(0, 50, url="http://h:2")),
            look(1, receiver(1, 150), receiver(1, 50, url="http://h:2")),
            look(3, receiver(3, 400), receiver(3, 200, url="http://h:2", headrace_oldest_pending_seconds=9)),
        )
        (found,) = figures.receivers
        assert found.events == 300 / 3 + 150 / 3
        assert (found.connections, found.oldest, found.budget) == (6, 9, 2000)
        assert figures.events == found.events
        first = last(look(0, receiver(0, 100), lake(0)))
        assert (first.events, first.lake.landed) == (None, None)
        assert last(look(0, receiver(0, 1000)), look(1, receiver(1, 7))).events == 7, "a counter that began anew"

    def test_the_busiest_sources_are_added_up_over_replicas(self) -> None:
        def sent(at: float, url: str, **events: float) -> Scrape:
            found = receiver(at, url=url)
            counts: Labelled = {(("source", name),): value for name, value in events.items()}
            sizes: Labelled = {labels: 100 * value for labels, value in counts.items()}
            own = {"headrace_top_source_events": counts, "headrace_top_source_bytes": sizes}
            return replace(found, values={**found.values, **own})

        figures = last(look(0, sent(0, "http://h:1", a=5, b=4), sent(0, "http://h:2", b=2), away(0, url="http://h:3")))
        assert [(each.source, each.events, each.bytes) for each in figures.sources] == [("b", 6, 600), ("a", 5, 500)]
        many = {f"s{number:02}": 20.0 - number for number in range(TOP_SOURCES + 1)}
        figures = last(look(0, sent(0, "http://h:1", **many)))
        assert [each.source for each in figures.sources] == [*many][:TOP_SOURCES]
        assert document(figures, Model(), 0)["sources"] == figures.sources

    def test_acknowledgements_are_those_of_the_window(self) -> None:
        def observed(at: float, *counts: float) -> Scrape:
            found = receiver(at)
            bounds = [(("le", bound),) for bound in ("0.1", "1.0", "+Inf")]
            buckets: Labelled = dict(zip(bounds, counts, strict=True))
            return replace(found, values={**found.values, "headrace_ack_seconds_bucket": buckets})

        figures = last(look(0, observed(0, 0, 100, 100)), look(3, observed(3, 1, 101, 101)))
        assert figures.receivers[0].p50 == pytest.approx(0.05)
        assert figures.p99 == pytest.approx(0.099)
        figures = last(look(0, observed(0, 0, 0, 0)), look(3, observed(3, 5, 5, 10)))
        assert (figures.receivers[0].p50, figures.p99) == (0.1, 1.0), "beyond the last bound it is the last bound"

    def test_partitions_have_rates_and_lags_of_their_own(self) -> None:
        figures = last(
            look(0, receiver(0), lake(0), kafka=kafka(100, landed=90)),
            look(4, receiver(4), lake(4), kafka=kafka(500, landed=200)),
        )
        (lane,) = figures.lanes
        assert (lane.rate, lane.lag, figures.lake.lag) == (100, 300, 300)
        two = (PartitionLook("headrace.events", 0, 100, 1, landed=90), PartitionLook("headrace.events", 1, 100, 1))
        figures = last(look(0, receiver(0), lake(0), kafka=replace(kafka(), partitions=two)))
        assert ([lane.lag for lane in figures.lanes], figures.lake.lag) == ([10, None], None)

    def test_the_past_is_bounded(self) -> None:
        model = Model()
        for at in range(0, int(SPAN) * 3, 1):
            model.add(look(at, quarantined(at, bad_json=at), receiver(at, at, url="http://h:2")))
        assert len(model.history) <= SPAN + 1
        assert len(model._looks) < 40
        assert len(model._reasons) <= SPAN + 1
        assert sum(model._reasons[0][1].values()) == 1

    def test_a_point_has_a_finite_value_for_each_field(self) -> None:
        figures = (model := Model()).add(look(0, receiver(0), lake(0)))
        (point,) = model.history
        assert point["time"] == UNIX
        assert INF not in point.values()
        assert json.loads(orjson.dumps(document(figures, model, 0), default=_plain))["history"] == [point]


class TestOutage:
    def test_kafka_that_stores_nothing_is_told_in_words(self) -> None:
        waits: dict[str, Any] = {"headrace_frames_pending": 50.0, "headrace_oldest_pending_seconds": 12.4}
        waits["headrace_budget_used_bytes"] = 200.0
        stopped = look(13, receiver(13, 100, **waits), kafka=kafka(100, problem="it does not answer"))
        first, second, *more = verdict(last(look(0, receiver(0, 100), kafka=kafka(100)), stopped))
        assert first.level == BAD
        assert first.text.startswith("Kafka has stored nothing for 12 s: 50 frames wait. Clients are not acknowledged;")
        assert re.match("Nothing is lost.*it does not answer", second.text)
        assert any("forward: 200 bytes of 1000 bytes in flight" in each.text for each in more)

    def test_frames_that_wait_are_an_outage_if_nothing_is_stored(self) -> None:
        """Without a look at Kafka."""
        waits: dict[str, Any] = {"headrace_frames_pending": 1.0, "headrace_oldest_pending_seconds": 3.5}
        for stored in (5, 6):
            figures = last(look(0, receiver(0, 5)), look(1, receiver(1, stored, **waits)))
            assert (figures.outage is not None) is ("1 frame waits" in verdict(figures)[0].text) is (stored == 5)

    def test_kafkas_absence_and_return_are_seen_once(self) -> None:
        model = Model()
        told = verdict(model.add(look(0, receiver(0, 5), kafka=kafka(problem="away"))))[0]
        assert told.text == "Kafka does not answer, for 0 s now. No client waits for an acknowledgement yet."
        assert there(model.add(look(10, receiver(10, 5), kafka=kafka(problem="silent"))).outage).why == "silent"
        told = verdict(model.add(look(20, receiver(20, 50), kafka=kafka())))[0]
        assert told.level == WATCH
        assert told.text == "Kafka has been storing again for 0 s, after 20 s without; all that waited is stored."
        figures = model.add(look(200, receiver(200, 50), kafka=kafka()))
        assert figures.outage is not None
        assert verdict(figures)[0].level == GOOD
        assert [point["kafka"] for point in model.history] == [0, 0, 1, 1]
        assert model.add(look(20 + SPAN, receiver(900, 50), kafka=kafka())).outage
        assert model.add(look(900, receiver(900, 50), kafka=kafka())).outage is None


GAPS = TablesLook("", {"events": 1}, None, [GapTotal("retention", 1, 70)])


@pytest.mark.parametrize(
    ("looks", "level", "title"),
    [
        (
            [look(0, receiver(0, 0), lake(0)), look(3, receiver(3, 3000), lake(3, 3000))], GOOD,
            "1,000 events a second from 3 connections; landed 1.5 s after receipt.",
        ),
        (
            [look(at, receiver(at, 5, headrace_connections_opened_total=2)) for at in (0, 3)], GOOD,
            "All is ready. Nobody sends: nobody is connected.",
        ),
        ([look(0)], WATCH, "No part is known yet."),
        ([look(0, away(0))], BAD, "forward does not answer: its clients keep what they have, and come again."),
        ([look(0, away(0), receiver(0, url="http://h:2"))], WATCH, "forward: 1 of 2 replicas do not answer (h:1)."),
        ([look(0, receiver(0, ready=False))], WATCH, "forward: 1 of 1 not ready: Kafka is away."),
        (
            [look(0, receiver(0), away(0, url="http://h:9", service="lake"))], BAD,
            "The landing job does not answer. Events are safe in Kafka and land, each once, when it is back.",
        ),
        ([look(0, receiver(0), lake(0, ready=False))], WATCH, "The landing job is not ready. Events are safe in Kafka."),
        (
            [
                look(at, receiver(at), lake(at, 1000.0 * at, last=UNIX + at), kafka=kafka(60_000, landed=1000 * at))
                for at in (0, 12)
            ],
            WATCH, "The landing job catches up: 48,000 records have not landed, about 48 s at this rate.",
        ),
        (
            [
                look(at, receiver(at, 1000 * at), lake(at, 0, last=UNIX + at - 30), kafka=kafka(30_000, landed=0))
                for at in (0, 3)
            ],
            GOOD, "1,000 events a second from 3 connections.",
        ),
        (
            [look(200, receiver(200), lake(200), kafka=kafka(5, landed=0))], WATCH,
            "The landing job has landed nothing for 3 min: 5 records wait in Kafka.",
        ),
        (
            [look(0, receiver(0), kafka=kafka(leader=None))], BAD,
            "1 partition of Kafka without a leader: what is meant for them waits.",
        ),
        (
            [look(0, receiver(0), kafka=kafka(missing=(2,)))], WATCH,
            "Broker 2 is away: Kafka goes on with the replicas that are left.",
        ),
        (
            [look(0, receiver(0, headrace_budget_used_bytes=450))], WATCH,
            "forward: 450 bytes of 1000 bytes in flight. Near half, it stops reading.",
        ),
        ([look(0, receiver(0, headrace_budget_used_bytes=449))], GOOD, "The first rates come with the next look."),
        (
            [look(0, quarantined(0, bad_json=0)), look(3, quarantined(3, bad_json=2))], WATCH,
            "2 events not understood in the last 3 s, kept byte for byte in quarantine: bad_json 2.",
        ),
        (
            [look(0, receiver(0), tables=GAPS)], BAD,
            "The tables know 1 gap in Kafka's offsets (retention, 70 records): deleted before they landed.",
        ),
    ],
)  # fmt: skip
def test_the_first_sentence(looks: list[Look], level: str, title: str) -> None:
    told, *_ = verdict(last(*looks))
    assert (told.level, told.text) == (level, title)
    assert (told.see == "") is (level == GOOD)
    if told.see.startswith("./headrace "):
        take(shlex.split(told.see)[1:])
    elif told.see:
        assert told.see.removeprefix("docs/runbooks.md#") in anchors(ROOT / "docs" / "runbooks.md")


def test_at_most_nine_findings_are_told_and_the_worst_first() -> None:
    many = [away(0, service=f"s{number}") for number in range(9)]
    told = verdict(last(look(0, receiver(0, ready=False), *many)))
    assert [each.level for each in told] == [BAD] * 9
    told = verdict(last(look(0, receiver(0, ready=False), *many[:1])))
    assert [each.level for each in told] == [BAD, WATCH, GOOD]
