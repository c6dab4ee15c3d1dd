"""The meaning of the figures, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace_cli.console import count, duration, format_size, span

from headrace_live.looks import Figures, ReceiverLook

GOOD: Final = "good"
WATCH: Final = "watch"
BAD: Final = "bad"
_ORDER: Final = (GOOD, WATCH, BAD)
BEHIND: Final = 20.0
"""Seconds: a landing job is behind if it needs more for what had come before its last batch landed, and some still waits."""
SILENT: Final = 180.0
"""Seconds: a landing job that has landed nothing for longer, while something waits, has stopped."""
AFTER: Final = 120.0
"""Seconds for which an outage that is over is still mentioned."""
FULL: Final = 0.45
"""Arrivals may take half of a budget: near it receivers stop reading."""


@dataclass(frozen=True)
class Assessment:
    """`level`: good, watch or bad. `title` is one sentence, `lines` are more, the most important first."""

    level: str
    title: str
    lines: tuple[str, ...] = ()


def verdict(figures: Figures) -> Assessment:
    """Say how the headrace does, the worst first."""
    found = list(_all(figures))
    level = max((level for level, _ in found), key=_ORDER.index, default=GOOD)
    title, *lines = [text for wanted in reversed(_ORDER) for is_, text in found if is_ == wanted]
    return Assessment(level, title, tuple(lines[:8]))


def _all(figures: Figures) -> Iterator[tuple[str, str]]:
    if not figures.receivers and not figures.lake.replicas:
        yield WATCH, "No part is known yet."
        return
    yield from _kafka(figures)
    yield from _receivers(figures)
    yield from _lake(figures)
    yield from _doubts(figures)
    if figures.outage is None or figures.outage.ended is not None:
        yield GOOD, _flow(figures)


def _kafka(figures: Figures) -> Iterator[tuple[str, str]]:
    outage, pending = figures.outage, figures.pending
    if outage is not None and outage.ended is None:
        lasted = figures.at - outage.began
        if pending:
            waits = f"{count(pending, 'frame')} {'waits' if pending == 1 else 'wait'}"
            yield (
                BAD,
                f"Kafka has stored nothing for {span(max(lasted, figures.oldest))}: {waits}. Clients are not acknowledged; they"
                " keep what they sent, or send it again.",
            )
        else:
            yield BAD, f"Kafka does not answer, for {span(lasted)} now. No client waits for an acknowledgement yet."
        yield BAD, f"Nothing is lost: an acknowledgement leaves only after Kafka has stored. Kafka: {outage.why}."
        yield from _budget(figures)
    elif outage is not None and outage.ended is not None and figures.at - outage.ended < AFTER:
        ago, gone = span(figures.at - outage.ended), span(outage.ended - outage.began)
        yield (
            WATCH,
            f"Kafka has been storing again for {ago}, after {gone} without{'' if pending else '; all that waited is stored'}.",
        )
    kafka = figures.kafka
    if kafka is None or kafka.problem:
        return
    leaderless = sum(lane.leaderless for lane in figures.lanes)
    if leaderless:
        yield BAD, f"{count(leaderless, 'partition')} of Kafka without a leader: what is meant for them waits."
    if kafka.missing:
        names = ", ".join(map(str, kafka.missing))
        yield WATCH, f"Broker {names} is away: Kafka goes on with the replicas that are left."


def _budget(figures: Figures) -> Iterator[tuple[str, str]]:
    paused = sum(receiver.paused for receiver in figures.receivers)
    holding = [receiver for receiver in figures.receivers if receiver.used and receiver.budget]
    if paused:
        used = sum(receiver.used for receiver in figures.receivers)
        held = format_size(used)
        yield WATCH, f"{count(paused, 'connection')} not read now: {held} are in flight. These clients wait."
    elif holding:
        fullest = max(holding, key=lambda receiver: receiver.used / receiver.budget)
        yield WATCH, f"{fullest.service}: {_in_flight(fullest)}. At half, its clients wait."


def _receivers(figures: Figures) -> Iterator[tuple[str, str]]:
    down = figures.outage is not None and figures.outage.ended is None
    for receiver in figures.receivers:
        replicas = receiver.replicas
        away = [replica for replica in replicas if replica.state == "away"]
        unready = [replica for replica in replicas if replica.state == "unready"]
        if away and len(away) == len(replicas):
            yield BAD, f"{receiver.service} does not answer: its clients keep what they have, and come again."
        elif away:
            yield (
                WATCH,
                f"{receiver.service}: {len(away)} of {len(replicas)} replicas do not answer ({away[0].url.partition('://')[2]}).",
            )
        if unready and not down:
            why = f": {unready[0].note}" if unready[0].note else ""
            yield WATCH, f"{receiver.service}: {len(unready)} of {len(replicas)} not ready{why}."
        if not down and receiver.budget and receiver.used >= FULL * receiver.budget:
            yield WATCH, f"{receiver.service}: {_in_flight(receiver)}. Near half, it stops reading."


def _in_flight(receiver: ReceiverLook) -> str:
    return f"{format_size(receiver.used)} of {format_size(receiver.budget)} in flight"


def _lake(figures: Figures) -> Iterator[tuple[str, str]]:
    lake = figures.lake
    if not lake.replicas:
        return
    down = figures.outage is not None and figures.outage.ended is None
    if all(replica.state == "away" for replica in lake.replicas):
        yield BAD, "The landing job does not answer. Events are safe in Kafka and land, each once, when it is back."
        return
    if not lake.ready and not down:
        note = lake.replicas[0].note
        yield WATCH, f"The landing job is not ready{f': {note}' if note else ''}. Events are safe in Kafka."
    behind = behind_seconds(figures)
    if lake.lag and lake.ago is not None and lake.ago > SILENT and not down:
        yield (
            WATCH,
            f"The landing job has landed nothing for {span(lake.ago)}: {count(lake.lag, 'record')} wait in Kafka.",
        )
    elif behind is not None and behind > BEHIND and not down:
        yield (
            WATCH,
            f"The landing job catches up: {count(lake.lag or 0, 'record')} have not landed, about {span(behind)} at this rate.",
        )


def behind_seconds(figures: Figures) -> float | None:
    """Return how long the landing job needs for the records that have not landed; None: not known. Records since its last batch
    wait for the next one and do not count, except after an outage.
    """
    lake, rate = figures.lake, figures.events or 0
    if lake.lag is None:
        return None
    fresh = 0.0 if figures.outage is not None else rate * (lake.ago or 0)
    return max(0.0, lake.lag - fresh) / max(lake.landed or 0, rate, 100)


def _doubts(figures: Figures) -> Iterator[tuple[str, str]]:
    since = span(figures.span)
    if figures.quarantined:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in list(figures.quarantined.items())[:4])
        total = sum(figures.quarantined.values())
        yield (
            WATCH,
            f"{count(total, 'event')} not understood in the last {since}, kept byte for byte in quarantine: {reasons}.",
        )
    lost = sum(receiver.lost for receiver in figures.receivers)
    if lost:
        yield WATCH, f"{count(lost, 'message')} of Logjam's devices came to no consumer: the devices dropped them."
    for gap in figures.tables.gaps if figures.tables is not None else ():
        what = "" if gap.lost is None else f", {count(gap.lost, 'record')}"
        yield (
            BAD,
            f"The tables know {count(gap.rows, 'gap')} in Kafka's offsets ({gap.reason}{what}): deleted before they landed.",
        )


def _flow(figures: Figures) -> str:
    connections = sum(receiver.connections for receiver in figures.receivers)
    events = figures.events
    if events is None:
        return "The first rates come with the next look."
    if not events:
        who = f"{count(connections, 'connection')} open" if connections else "nobody is connected"
        replicas = [*(each for one in figures.receivers for each in one.replicas), *figures.lake.replicas]
        ready = all(replica.state == "ready" for replica in replicas)
        return f"{'All is ready. ' if ready else ''}Nobody sends: {who}."
    acked = f", acknowledged within {duration(figures.p99)} (99 of 100 frames)" if figures.p99 is not None else ""
    fresh = f"; landed {duration(figures.lake.p50)} after receipt" if figures.lake.p50 is not None else ""
    return f"{short(events)} events a second from {count(connections, 'connection')}{acked}{fresh}."


def short(number: float | None) -> str:
    """Return a number as ``12.3k``, at most five characters."""
    if number is None:
        return "–"
    for unit in ("", "k", "M", "G"):
        if abs(number) < 999.5:
            return f"{number:.0f}{unit}" if not unit or number >= 99.95 else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.0f}T"
