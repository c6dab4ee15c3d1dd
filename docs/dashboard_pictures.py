"""Pictures of the dashboards: asks a Prometheus every query of every panel, and draws what it answers.

``python docs/dashboard_pictures.py http://localhost:9090 [--minutes 15]`` writes ``dashboard-*.svg`` beside this file.
They are no screenshots of Grafana: they show which panels there are, and what the queries return.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from dashboard_panels import LAKE, RECEIVERS, Panel, Row

DOCS: Final = Path(__file__).parent
WIDTH: Final = 1200
HEAD: Final = 26
HEIGHT: Final = 190
GAP: Final = 8
POINTS: Final = 120
COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
VARIABLES: Final = {"$__rate_interval": "1m", "$namespace": "", "$release": "", "$job": ".*", "$instance": ".*"}
"""The variables that Grafana fills in, for a scrape interval up to 15 s, without labels of releases and with "All" chosen."""

Ask = Callable[[str], Sequence[Mapping[str, Any]]]
"""A query to its series, each as Prometheus gives them: ``{"metric": {...}, "values": [[seconds, "1.5"], ...]}``."""


@dataclass(frozen=True)
class Line:
    """A series: what the legend calls it, and its points as (seconds, value)."""

    name: str
    points: Sequence[tuple[float, float]]


def prometheus(url: str, minutes: float) -> Ask:
    """Asks the server at `url` about the last `minutes`. Raises `OSError` where it does not answer."""
    now = time.time()
    window = {"start": now - 60 * minutes, "end": now, "step": max(1, round(60 * minutes / POINTS))}

    def ask(query: str) -> Sequence[Mapping[str, Any]]:
        given = urllib.parse.urlencode({"query": query, **window})
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{given}", timeout=30) as answer:  # noqa: S310
            found: Sequence[Mapping[str, Any]] = json.load(answer)["data"]["result"]
            return found

    return ask


def filled(query: str) -> str:
    """The query without Grafana's variables."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def lines(panel: Panel, ask: Ask) -> list[Line]:
    """The series of all queries of a panel."""
    found = []
    for query, legend in panel.queries:
        for series in ask(filled(query)):
            labels = series["metric"]
            name = re.sub(r"{{(\w+)}}", lambda match, labels=labels: labels.get(match[1], ""), legend)  # type: ignore[misc]
            points = [(float(at), float(value)) for at, value in series["values"]]
            found.append(Line(name, [point for point in points if math.isfinite(point[1])]))
    return [line for line in found if line.points]


def shown(value: float, unit: str) -> str:
    """A value as a reader wants it."""
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        if value >= 2 * 86_400:
            return f"{value / 86_400:.1f} days"
        return f"{value * 1000:.0f} ms" if 0 < value < 1 else f"{value:.1f} s"
    suffix = {"bytes": "B", "Bps": "B/s", "cps": "/s"}.get(unit, "")
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {prefix}{suffix}"
    return f"{value:g} {suffix}".strip() if value == round(value) else f"{value:.2f} {suffix}".strip()


def _text(x: float, y: float, words: str, size: int = 11, colour: str = "#333", weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" font-weight="{weight}">{escape(words)}</text>'


def drawn(
    panel: Panel, found: Sequence[Line], window: tuple[float, float], x: float, y: float, width: float
) -> Iterator[str]:
    """One panel, over `window`: its first and last second."""
    yield f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT}" fill="#fff" stroke="#ccc"/>'
    yield _text(x + 8, y + 17, panel.title, 12, weight="bold")
    if not found:
        yield _text(x + width / 2 - 24, y + HEIGHT / 2, "nothing", colour="#999")
        return
    if panel.stat:
        yield _text(x + 20, y + HEIGHT / 2 + 16, shown(found[0].points[-1][1], panel.unit), 34, "#2a7d2a", "bold")
        return
    first, last = window
    top = max(value for line in found for _, value in line.points) or 1.0
    left, right, upper, lower = x + 8, x + width - 8, y + 40, y + HEIGHT - 34
    yield _text(left, upper - 6, shown(top, panel.unit), 10, "#888")
    yield f'<path d="M{left:.0f} {lower:.0f}H{right:.0f}M{left:.0f} {upper:.0f}H{right:.0f}" stroke="#eee" fill="none"/>'
    if panel.alarm is not None and panel.alarm <= top:
        at = lower - (lower - upper) * panel.alarm / top
        yield f'<path d="M{left:.0f} {at:.1f}H{right:.0f}" stroke="#d00" stroke-dasharray="4 3" fill="none"/>'
    legend = left
    for index, line in enumerate(found):
        colour = COLOURS[index % len(COLOURS)]
        places = " ".join(
            f"{left + (right - left) * (at - first) / (last - first):.1f},{lower - (lower - upper) * value / top:.1f}"
            for at, value in line.points
        )
        yield f'<polyline points="{places}" stroke="{colour}" stroke-width="1.5" fill="none"/>'
        wide = 14 + 6 * len(line.name)
        if legend + wide < right:
            yield f'<rect x="{legend:.0f}" y="{lower + 12:.0f}" width="8" height="8" fill="{colour}"/>'
            yield _text(legend + 11, lower + 20, line.name, 10)
            legend += wide + 6


def picture(rows: Sequence[Row], ask: Ask) -> str:
    """A dashboard as SVG."""
    found = {panel.title: lines(panel, ask) for row in rows for panel in row.panels}
    times = [at for each in found.values() for line in each for at, _ in line.points] or [0.0]
    window = (min(times), max(*times, min(times) + 1))
    y = 0.0
    made: list[str] = []
    for row in rows:
        made.append(_text(4, y + 18, row.title, 14, weight="bold"))
        y += HEAD
        width = (WIDTH + GAP) / len(row.panels) - GAP
        for index, panel in enumerate(row.panels):
            made += drawn(panel, found[panel.title], window, index * (width + GAP), y, width)
        y += HEIGHT + GAP
    size = f'width="{WIDTH}" height="{y:.0f}" viewBox="0 0 {WIDTH} {y:.0f}"'
    style = 'font-family="sans-serif" style="background: #f4f5f5"'
    return "\n".join((f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', *made, "</svg>\n"))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=15)
    arguments = parser.parse_args()
    ask = prometheus(arguments.url.rstrip("/"), arguments.minutes)
    for name, rows in (("receivers", RECEIVERS), ("lake", LAKE)):
        (DOCS / f"dashboard-{name}.svg").write_text(picture(rows, ask))


if __name__ == "__main__":
    main()
