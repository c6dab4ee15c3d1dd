"""The two Grafana dashboards as JSON: `generate.py` writes what Grafana, the chart and the tests read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from dashboard_panels import LAKE, RECEIVERS, Panel, Row

WIDTH: Final = 24
"""Columns of Grafana's grid."""

HEIGHT: Final = 7
PROMETHEUS: Final = {"type": "prometheus", "uid": "${datasource}"}


def _variable(name: str, label: str, query: str, *, several: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {"includeAll": False, "multi": False}
    if several:
        chosen = {
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": PROMETHEUS,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        **chosen,
    }


def _variables(metric: str, *, by_instance: bool) -> list[dict[str, Any]]:
    """One namespace and one release at a time; both are empty where Prometheus has no such labels."""
    made: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    ]
    matchers: list[str] = []
    for name, label in (
        ("namespace", "Namespace"),
        ("release", "Release"),
        ("job", "Receiver"),
        ("instance", "Process"),
    ):
        several = name in ("job", "instance")
        if several and not by_instance:
            continue
        where = f"{{{', '.join(matchers)}}}" if matchers else ""
        made.append(_variable(name, label, f"label_values({metric}{where}, {name})", several=several))
        matchers.append(f'{name}=~"${name}"' if several else f'{name}="${name}"')
    return made


def _panel(panel: Panel, number: int, x: int, y: int, width: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green" if panel.stat else "text", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    custom = {} if panel.stat else {"custom": {"fillOpacity": 8, "showPoints": "never", "lineWidth": 1}}
    alarmed = {"thresholdsStyle": {"mode": "dashed"}} if panel.alarm is not None else {}
    options = (
        {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"}
        if panel.stat
        else {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    )
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": PROMETHEUS,
        "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": PROMETHEUS, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                **({"custom": {**custom["custom"], **alarmed}} if custom else {}),
            },
            "overrides": [],
        },
        "options": options,
    }


def dashboard(title: str, uid: str, rows: Sequence[Row], metric: str, *, by_instance: bool) -> Callable[[], str]:
    """A dashboard as the JSON that Grafana imports. `metric`: what every release has; its labels name the releases."""

    def page() -> str:
        panels: list[dict[str, Any]] = []
        y = 0
        for row in rows:
            heading = {"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": []}
            panels.append({**heading, "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
            y += 1
            width = WIDTH // len(row.panels)
            for index, panel in enumerate(row.panels):
                panels.append(_panel(panel, len(panels) + 1, index * width, y, width))
            y += HEIGHT
        made = {
            "uid": uid,
            "title": title,
            "tags": ["headrace"],
            "schemaVersion": 39,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": _variables(metric, by_instance=by_instance)},
            "panels": panels,
        }
        return json.dumps(made, indent=1) + "\n"

    return page


DASHBOARDS: Final = {
    "receivers": dashboard(
        "Headrace: receivers", "headrace-receivers", RECEIVERS, "headrace_connections", by_instance=True
    ),
    "lake": dashboard(
        "Headrace: lake", "headrace-lake", LAKE, "headrace_lake_last_landed_timestamp_seconds", by_instance=False
    ),
}
"""By the name of the file."""
