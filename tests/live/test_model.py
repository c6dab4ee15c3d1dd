"""What a row of looks says, and what the page says of it in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from headrace_cli.operating.exposition import Scrape
from headrace_live.looks import Figures, GapTotal, Look, PartitionLook, TablesLook
from headrace_live.model import FIELDS, POINTS, REPLICAS, SPAN, Model
from headrace_live.service import _plain, document, rounded
from headrace_live.words import BAD, GOOD, WATCH, verdict

from tests.live.seen import INF, UNIX, Labelled, away, kafka, lake, look, quarantined, receiver


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
        assert (found.connections, found.oldest, found.budget, found.ready) == (6, 9, 2000, 2)
        assert figures.events == found.events

    def test_a_counter_that_began_anew_grew_from_nothing(self) -> None:
        assert last(look(0, receiver(0, 1000)), look(1, receiver(1, 7))).events == 7

    def test_the_first_look_has_no_rate(self) -> None:
        figures = last(look(0, receiver(0, 100), lake(0)))
        assert (figures.events, figures.lake.landed) == (None, None)
        assert verdict(figures).level == GOOD

    def test_acknowledgements_are_those_of_the_window(self) -> None:
        def observed(at: float, *counts: float) -> Scrape:
            found = receiver(at)
            buckets: Labelled = {
                (("le", bound),): value for bound, value in zip(("0.1", "1.0", "+Inf"), counts, strict=True)
            }
            return Scrape("forward", found.url, at, True, (), {**found.values, "headrace_ack_seconds_bucket": buckets})

        figures = last(look(0, observed(0, 0, 100, 100)), look(3, observed(3, 10, 110, 110)))
        assert figures.receivers[0].p50 == pytest.approx(0.05)
        assert figures.p99 == pytest.approx(0.099)

    def test_partitions_have_rates_and_their_own_lag(self) -> None:
        figures = last(
            look(0, receiver(0), lake(0, lag=7), kafka=kafka(100, landed=90)),
            look(4, receiver(4), lake(4, lag=7), kafka=kafka(500, landed=200)),
        )
        (lane,) = figures.lanes
        assert (lane.rate, lane.lag, figures.lake.lag) == (100, 300, 300)

    def test_part_of_a_lag_is_no_lag(self) -> None:
        two = (PartitionLook("headrace.events", 0, 100, 1, landed=90), PartitionLook("headrace.events", 1, 100, 1))
        figures = last(look(0, receiver(0), lake(0), kafka=replace(kafka(), partitions=two)))
        assert ([lane.lag for lane in figures.lanes], figures.lake.lag) == ([10, None], None)

    def test_without_kafka_the_lag_is_what_the_landing_job_says(self) -> None:
        figures = last(look(0, lake(0, lag=7)))
        (lane,) = figures.lanes
        assert (lane.topic, lane.rate, lane.end, lane.lag, figures.lake.lag) == ("headrace.events", None, None, 7, 7)

    def test_a_process_that_began_anew_is_a_restart_and_a_new_one_is_not(self) -> None:
        figures = last(
            look(0, receiver(0)),
            look(1, receiver(1), receiver(1, url="http://h:2", process_start_time_seconds=UNIX + 1)),
            look(
                2,
                receiver(2, process_start_time_seconds=UNIX + 2),
                receiver(2, url="http://h:2", process_start_time_seconds=UNIX + 1),
            ),
        )
        assert figures.restarts == {"forward": 1}
        assert {replica.url: replica.restarts for replica in figures.receivers[0].replicas} == {
            "http://h:1": 1,
            "http://h:2": 0,
        }

    def test_a_process_says_whether_it_has_its_native_core(self) -> None:
        found = receiver(0)
        build_info: Labelled = {(("native", "off"), ("version", "1")): 1.0}
        figures = last(
            look(
                0, replace(found, values={**found.values, "headrace_build_info": build_info}), away(0, url="http://h:2")
            )
        )
        assert {each.url: each.native for each in figures.receivers[0].replicas} == {
            "http://h:1": "off",
            "http://h:2": "",
        }

    def test_quarantine_counts_by_reason_what_came_while_it_looked(self) -> None:
        figures = last(look(0, quarantined(0, bad_json=5)), look(1, quarantined(1, bad_json=7, oversized=1)))
        assert figures.quarantined == {"bad_json": 2, "oversized": 1}

    def test_the_past_is_bounded(self) -> None:
        model = Model()
        for at in range(0, int(SPAN) * 3, 1):
            model.add(
                look(
                    at,
                    quarantined(at, bad_json=at),
                    receiver(at, at, url="http://h:2", process_start_time_seconds=UNIX + 10 * at),
                )
            )
        assert len(model.history) <= SPAN + 1
        assert len(model._looks) < 40
        assert len(model._reasons) <= POINTS
        assert len(model._restarted) <= POINTS
        assert sum(model._reasons[0][1].values()) == 1

    def test_fifty_replicas_are_one_receiver_and_a_small_message(self) -> None:
        scrapes = [receiver(0, url=f"http://10.0.0.{n}:8080") for n in range(50)]
        later = [receiver(3, 60, url=f"http://10.0.0.{n}:8080") for n in range(50)]
        model = Model()
        model.add(look(0, *scrapes))
        figures = model.add(look(3, *later))
        assert figures.events == pytest.approx(1000)
        told = orjson.dumps(document(figures, model, UNIX + 2), default=_plain)
        assert len(told) < 12_000

    def test_no_more_replicas_are_listed_than_the_page_can_show_and_the_troubled_come_first(self) -> None:
        scrapes = [receiver(0, url=f"http://h:{n}") for n in range(REPLICAS)]
        (found,) = last(look(0, *scrapes, away(0, url="http://gone:1"))).receivers
        assert len(found.replicas) == REPLICAS
        assert found.replicas[0].state == "away"

    def test_a_point_has_a_value_for_each_field(self) -> None:
        model = Model()
        figures = model.add(look(0, receiver(0), lake(0)))
        (point,) = model.history
        assert len(point) == len(FIELDS)
        assert rounded(point)[0] == UNIX
        document_ = json.loads(orjson.dumps(document(figures, model, 0), default=_plain))
        assert document_["fields"] == list(FIELDS)


class TestOutage:
    def test_kafka_that_stores_nothing_is_told_in_words(self) -> None:
        model = Model()
        model.add(look(0, receiver(0, 100), kafka=kafka(100)))
        waits: dict[str, Any] = {
            "headrace_frames_pending": 50.0,
            "headrace_oldest_pending_seconds": 12.4,
            "headrace_budget_used_bytes": 200.0,
        }
        figures = model.add(look(13, receiver(13, 100, **waits), kafka=kafka(100, problem="it does not answer")))
        told = verdict(figures)
        assert told.level == BAD
        assert told.title == (
            "Kafka has stored nothing for 12 s: 50 frames wait. Clients are not acknowledged; they keep what they sent,"
            " or send it again."
        )
        assert told.lines[0].startswith("Nothing is lost")
        assert "it does not answer" in told.lines[0]
        assert any("forward: 200 bytes of 1000 bytes in flight" in line for line in told.lines)

    def test_it_is_seen_at_the_first_look_that_kafka_does_not_answer(self) -> None:
        figures = last(
            look(0, receiver(0), kafka=kafka()), look(1, receiver(1), kafka=kafka(problem="h:1 does not answer"))
        )
        assert (
            verdict(figures).title == "Kafka does not answer, for 0 s now. No client waits for an acknowledgement yet."
        )

    def test_frames_that_wait_while_nothing_is_stored_are_an_outage_without_a_look_at_kafka(self) -> None:
        waits: dict[str, Any] = {"headrace_frames_pending": 1.0, "headrace_oldest_pending_seconds": 3.5}
        figures = last(look(0, receiver(0, 5)), look(1, receiver(1, 5, **waits)))
        assert figures.outage is not None
        assert "1 frame waits" in verdict(figures).title

    def test_frames_that_wait_while_others_are_stored_are_none(self) -> None:
        waits: dict[str, Any] = {"headrace_frames_pending": 1.0, "headrace_oldest_pending_seconds": 3.5}
        assert last(look(0, receiver(0, 5)), look(1, receiver(1, 6, **waits))).outage is None

    def test_when_kafka_is_back_it_says_so_and_then_no_more(self) -> None:
        model = Model()
        model.add(look(0, receiver(0, 5), kafka=kafka(problem="away")))
        told = verdict(model.add(look(20, receiver(20, 50), kafka=kafka())))
        assert told.level == WATCH
        assert told.title == "Kafka has been storing again for 0 s, after 20 s without; all that waited is stored."
        figures = model.add(look(200, receiver(200, 50), kafka=kafka()))
        assert figures.outage is not None
        assert verdict(figures).level == GOOD
        assert model.add(look(900, receiver(900, 50), kafka=kafka())).outage is None

    def test_the_history_marks_it(self) -> None:
        model = Model()
        for at, problem in ((0, ""), (1, "away"), (2, "")):
            model.add(look(at, receiver(at, at), kafka=kafka(problem=problem)))
        assert [point[FIELDS.index("kafka")] for point in model.history] == [1, 0, 1]


class TestWords:
    @pytest.mark.parametrize(
        ("looks", "level", "title"),
        [
            (
                [look(0, receiver(0, 0), lake(0)), look(3, receiver(3, 3000), lake(3, 3000))], GOOD,
                "1.0k events a second from 3 connections; landed 1.5 s after receipt.",
            ),
            (
                [look(at, receiver(at, 5, headrace_connections=0)) for at in (0, 3)], GOOD,
                "All is ready. Nobody sends: nobody is connected.",
            ),
            ([look(0)], WATCH, "No part is known yet."),
            ([look(0, away(0))], BAD, "forward does not answer: its clients keep what they have, and come again."),
            (
                [look(0, away(0), receiver(0, url="http://h:2"))], WATCH,
                "forward: 1 of 2 replicas do not answer (h:1).",
            ),
            ([look(0, receiver(0, ready=False))], WATCH, "forward: 1 of 1 not ready: Kafka is away."),
            (
                [look(0, receiver(0), away(0, url="http://h:9", service="lake"))], BAD,
                "The landing job does not answer. Events are safe in Kafka and land, each once, when it is back.",
            ),
            (
                [look(at, receiver(at), lake(at, 1000.0 * at, lag=60_000 - 1000 * at, last=UNIX + at)) for at in (0, 12)], WATCH,
                "The landing job catches up: 48,000 records have not landed, about 48 s at this rate.",
            ),
            (
                [look(at, receiver(at, 1000 * at), lake(at, 0, lag=30_000, last=UNIX + at - 30)) for at in (0, 3)], GOOD,
                "1.0k events a second from 3 connections; landed 1.5 s after receipt.",
            ),
            (
                [look(200, receiver(200), lake(200, lag=5))], WATCH,
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
        ],
    )  # fmt: skip
    def test_the_first_sentence(self, looks: list[Look], level: str, title: str) -> None:
        told = verdict(last(*looks))
        assert (told.level, told.title) == (level, title)

    def test_a_landing_job_that_is_not_ready_is_not_all(self) -> None:
        idle = [receiver(at, 5, headrace_connections=0) for at in (0, 3)]
        not_ready = replace(lake(3), ready=False)
        told = verdict(last(look(0, idle[0], lake(0)), look(3, idle[1], not_ready)))
        assert not any("All is ready" in line for line in (told.title, *told.lines))

    def test_doubts(self) -> None:
        gaps = TablesLook("", {"events": 1}, None, [GapTotal("retention", 1, 70)])
        told = verdict(last(
            look(0, quarantined(0, bad_json=0), tables=gaps),
            look(3, quarantined(3, bad_json=2), tables=gaps),
        ))  # fmt: skip
        assert told.level == BAD
        assert (
            told.title
            == "The tables know 1 gap in Kafka's offsets (retention, 70 records): deleted before they landed."
        )
        assert "2 events not understood in the last 3 s, kept byte for byte in quarantine: bad_json 2." in told.lines


def test_quantiles_beyond_the_last_bucket_are_finite() -> None:
    assert INF not in [value for value in rounded((UNIX, 1e300, None)) if value is not None]
