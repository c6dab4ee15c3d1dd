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
_ORDER: Final = (BAD, WATCH, GOOD)
BEHIND: Final = 20.0
"""Seconds: a landing job is behind if it needs more for what had come before its last batch landed, and some still waits."""
SILENT: Final = 180.0
"""Seconds: a landing job that has landed nothing for longer, while something waits, has stopped."""
AFTER: Final = 120.0
"""Seconds for which an outage that is over is still mentioned."""
FULL: Final = 0.45
"""Arrivals may take half of a budget: near it receivers stop reading."""
_BROKERS: Final = "kafkas-brokers-are-restarted-or-replaced"
_PAUSED: Final = "headraceconnectionspaused"


@dataclass(frozen=True)
class Finding:
    """`level`: good, watch or bad. `see`: a command, or the place in the runbooks, that says what to do; "": nothing is to do."""

    level: str
    text: str
    see: str = ""


def verdict(figures: Figures) -> list[Finding]:
    """Say how the headrace does: at most nine findings, at least one, the worst first."""
    found = sorted(_all(figures), key=lambda finding: _ORDER.index(finding.level))
    return found[:9]


def _runbook(anchor: str) -> str:
    return f"docs/runbooks.md#{anchor}"


def _all(figures: Figures) -> Iterator[Finding]:
    if not figures.receivers and not figures.lake.replicas:
        yield Finding(WATCH, "No part is known yet.", "./headrace status")
        return
    yield from _kafka(figures)
    yield from _receivers(figures)
    yield from _lake(figures)
    yield from _doubts(figures)
    if figures.outage is None or figures.outage.ended is not None:
        yield Finding(GOOD, _flow(figures))


def _kafka(figures: Figures) -> Iterator[Finding]:
    outage, pending = figures.outage, figures.pending
    if outage is not None and outage.ended is None:
        lasted = figures.at - outage.began
        text = f"Kafka does not answer, for {span(lasted)} now. No client waits for an acknowledgement yet."
        if pending:
            waits = f"{count(pending, 'frame')} {'waits' if pending == 1 else 'wait'}"
            text = (
                f"Kafka has stored nothing for {span(max(lasted, figures.oldest))}: {waits}. Clients are not acknowledged; they"
                " keep what they sent, or send it again."
            )
        yield Finding(BAD, text, _runbook("headracereceiverstandsstill"))
        why = f"Nothing is lost: an acknowledgement leaves only after Kafka has stored. Kafka: {outage.why}."
        yield Finding(BAD, why, "./headrace check-loss")
        yield from _budget(figures)
    elif outage is not None and outage.ended is not None and figures.at - outage.ended < AFTER:
        ago, gone = span(figures.at - outage.ended), span(outage.ended - outage.began)
        stored = "" if pending else "; all that waited is stored"
        text = f"Kafka has been storing again for {ago}, after {gone} without{stored}."
        yield Finding(WATCH, text, "./headrace check-loss")
    kafka = figures.kafka
    if kafka is None or kafka.problem:
        return
    leaderless = sum(lane.leaderless for lane in figures.lanes)
    if leaderless:
        text = f"{count(leaderless, 'partition')} of Kafka without a leader: what is meant for them waits."
        yield Finding(BAD, text, _runbook(_BROKERS))
    if kafka.missing:
        names = ", ".join(map(str, kafka.missing))
        text = f"Broker {names} is away: Kafka goes on with the replicas that are left."
        yield Finding(WATCH, text, _runbook(_BROKERS))


def _budget(figures: Figures) -> Iterator[Finding]:
    paused = sum(receiver.paused for receiver in figures.receivers)
    holding = [receiver for receiver in figures.receivers if receiver.used and receiver.budget]
    if paused:
        held = format_size(sum(receiver.used for receiver in figures.receivers))
        text = f"{count(paused, 'connection')} not read now: {held} are in flight. These clients wait."
        yield Finding(WATCH, text, _runbook(_PAUSED))
    elif holding:
        fullest = max(holding, key=lambda receiver: receiver.used / receiver.budget)
        yield Finding(WATCH, f"{fullest.service}: {_in_flight(fullest)}. At half, its clients wait.", _runbook(_PAUSED))


def _receivers(figures: Figures) -> Iterator[Finding]:
    down = figures.outage is not None and figures.outage.ended is None
    for receiver in figures.receivers:
        name, replicas = receiver.service, receiver.replicas
        away = [replica for replica in replicas if replica.state == "away"]
        unready = [replica for replica in replicas if replica.state == "unready"]
        if away and len(away) == len(replicas):
            text = f"{name} does not answer: its clients keep what they have, and come again."
            yield Finding(BAD, text, _runbook("headracereceivergone"))
        elif away:
            text = f"{name}: {len(away)} of {len(replicas)} replicas do not answer ({away[0].url.partition('://')[2]})."
            yield Finding(WATCH, text, _runbook("headracereceiverdown"))
        if unready and not down:
            why = f": {unready[0].note}" if unready[0].note else ""
            text = f"{name}: {len(unready)} of {len(replicas)} not ready{why}."
            yield Finding(WATCH, text, _runbook("headracereceiverstandsstill"))
        if not down and receiver.budget and receiver.used >= FULL * receiver.budget:
            yield Finding(WATCH, f"{name}: {_in_flight(receiver)}. Near half, it stops reading.", _runbook(_PAUSED))


def _in_flight(receiver: ReceiverLook) -> str:
    return f"{format_size(receiver.used)} of {format_size(receiver.budget)} in flight"


def _lake(figures: Figures) -> Iterator[Finding]:
    lake = figures.lake
    if not lake.replicas:
        return
    down = figures.outage is not None and figures.outage.ended is None
    if all(replica.state == "away" for replica in lake.replicas):
        text = "The landing job does not answer. Events are safe in Kafka and land, each once, when it is back."
        yield Finding(BAD, text, _runbook("headracelakegone"))
        return
    if not lake.ready and not down:
        note = lake.replicas[0].note
        text = f"The landing job is not ready{f': {note}' if note else ''}. Events are safe in Kafka."
        yield Finding(WATCH, text, _runbook("headracelakestandsstill"))
    behind = behind_seconds(figures)
    if lake.lag and lake.ago is not None and lake.ago > SILENT and not down:
        text = f"The landing job has landed nothing for {span(lake.ago)}: {count(lake.lag, 'record')} wait in Kafka."
        yield Finding(WATCH, text, _runbook("headracelakestandsstill"))
    elif behind is not None and behind > BEHIND and not down:
        waits = f"{count(lake.lag or 0, 'record')} have not landed, about {span(behind)} at this rate"
        yield Finding(WATCH, f"The landing job catches up: {waits}.", _runbook("headracelakefallsbehind"))


def behind_seconds(figures: Figures) -> float | None:
    """Return how long the landing job needs for the records that have not landed; None: not known. Records since its last batch
    wait for the next one and do not count, except after an outage.
    """
    lake, rate = figures.lake, figures.events or 0
    if lake.lag is None:
        return None
    fresh = 0.0 if figures.outage is not None else rate * (lake.ago or 0)
    return max(0.0, lake.lag - fresh) / max(lake.landed or 0, rate, 100)


def _doubts(figures: Figures) -> Iterator[Finding]:
    since = span(figures.span)
    if figures.quarantined:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in list(figures.quarantined.items())[:4])
        events = count(sum(figures.quarantined.values()), "event")
        text = f"{events} not understood in the last {since}, kept byte for byte in quarantine: {reasons}."
        yield Finding(WATCH, text, "./headrace query --named rejects")
    lost = sum(receiver.lost for receiver in figures.receivers)
    if lost:
        text = f"{count(lost, 'message')} of Logjam's devices came to no consumer: the devices dropped them."
        yield Finding(WATCH, text, _runbook("headracelogjamloses"))
    for gap in figures.tables.gaps if figures.tables is not None else ():
        records = "" if gap.lost is None else f", {count(gap.lost, 'record')}"
        text = f"The tables know {count(gap.rows, 'gap')} in Kafka's offsets ({gap.reason}{records}): deleted before they landed."
        yield Finding(BAD, text, "./headrace query --named gaps")


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
    return f"{events:,.0f} events a second from {count(connections, 'connection')}{acked}{fresh}."
