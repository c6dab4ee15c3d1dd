"""Writes the tables of settings and metrics from their declarations: ``python docs/generate.py``. A test compares them."""

from __future__ import annotations

import json
from pathlib import Path

from headrace_cli.__main__ import VERBS, verb
from headrace_cli.verbs.snippet import CLIENTS, PORTS, configuration
from headrace_common.operations.metrics import MetricDeclaration, ReceiverMetrics
from headrace_common.operations.settings import LimitSettings, ServiceSettings, TopicsProcessSettings
from headrace_common.operations.variables import BYTE_UNITS, SECOND_UNITS, each_setting, variable
from headrace_common.protocol import installed
from headrace_common.record.contract import EVENT_RULES
from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_lake.tables.layout import EVENTS, QUARANTINE, SCHEMAS
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_mirror.metrics import MirrorMetrics
from headrace_mirror.settings import MirrorProcessSettings
from pydantic import SecretStr
from pydantic_settings import BaseSettings

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def _other(cls: type[BaseSettings]) -> str:
    """Whether a receiver has defaults of its own for what every receiver has."""
    shared = {variable(*row[:2]): row[2].default for row in each_setting(ServiceSettings)}
    rows = each_setting(cls)
    other = any(shared.get(variable(*row[:2]), row[2].default) != row[2].default for row in rows)
    return ", or other there" if other else ""


PARTS: list[tuple[str, type[BaseSettings]]] = [
    ("Every receiver", ServiceSettings),
    *((f"{protocol.title} only{_other(protocol.settings)}", protocol.settings) for protocol in installed()),
    ("Topics (`python -m headrace_common.topics`)", TopicsProcessSettings),
    ("Landing job", LakeProcessSettings),
    ("Mirror in Iceberg (`python -m headrace_mirror`)", MirrorProcessSettings),
]


def settings() -> str:
    """The page of settings: each where it first appears, and again where a receiver has another default."""
    lines = [
        "# Settings",
        "",
        "Environment variables. Durations are seconds, sizes bytes; both may have a unit: `5s`, `90m`, `7d`, `16MiB` (1024²),",
        "`16MB` (1000²). A secret may come from a file: `…_FILE`. An unknown name in a part's own sections, a value out of",
        "range or a contradiction ends the process with status 78 and one line for each problem; so does a variable whose name",
        "is nearly that of a setting. Others that nobody reads are ignored.",
        "",
        "`HEADRACE_NATIVE` says whether a receiver uses the native core: `auto` (the default: where it is installed), `off`, or",
        "`require`, which the receivers' images say. In a checkout `.venv/bin/python -m headrace_cli.machine.native` builds it.",
    ]
    seen: dict[str, object] = {}
    for title, cls in PARTS:
        rows = [row for row in each_setting(cls) if seen.get(variable(*row[:2]), ...) != row[2].default]
        seen = {variable(*row[:2]): row[2].default for row in rows} | seen
        if rows:
            lines += ["", f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
        for section, name, info in rows:
            default = info.default.get_secret_value() if isinstance(info.default, SecretStr) else info.default
            shown = "" if default in (None, "", ()) else f"`{default}`"
            lines.append(f"| `{variable(section, name)}` | {shown} | {info.description} |")
    return "\n".join(lines) + "\n"


def _metrics_table(rows: list[MetricDeclaration]) -> list[str]:
    lines = ["| metric | what it says |", "|---|---|"]
    for row in rows:
        labels = f"{{{','.join(row.labels)}}}" if row.labels else ""
        kind = " (histogram)" if row.kind == "histogram" else ""
        lines.append(f"| `{row.name}{labels}`{kind} | {row.meaning} |")
    return lines


def metrics() -> str:
    """The page of metrics."""
    lines = [
        "# Metrics",
        "",
        "At `/metrics` of every receiver, in Prometheus' text format, beside the client library's `process_*` and `python_gc_*`.",
        "`…_total` are counters, histograms are named, all others are gauges. Labels are in braces.",
        "",
    ]
    lines += _metrics_table(ReceiverMetrics().table())
    for protocol in installed():
        if own := protocol.own_metrics():
            lines += ["", f"{protocol.title} alone:", "", *_metrics_table(own)]
    lines += ["", "At `/metrics` of the landing job.", ""]
    lines += _metrics_table(LakeMetrics().table())
    lines += ["", "At `/metrics` of the [mirror in Iceberg](lake-query.md#iceberg).", ""]
    return "\n".join([*lines, *_metrics_table(MirrorMetrics().table())]) + "\n"


_RULES = "| header | what it must be |\n|---|---|\n"
_COLUMNS = "| column | type | what it is |\n|---|---|---|\n"


def lake() -> str:
    """The lake's page: what was written by hand, and the columns of two tables; of quarantine without those of events."""
    text = (DOCS / "lake.md").read_text()
    for name, others in ((EVENTS, []), (QUARANTINE, SCHEMAS[EVENTS].fields)):
        before, heading, after = text.partition(f"\n### {name}\n")
        lead, columns, rest = after.partition(_COLUMNS)
        _, _, rest = rest.partition("\n\n")
        rows = [
            f"| `{field.name}` | {field.dataType.simpleString()} | {field.metadata['comment']} |"
            for field in SCHEMAS[name].fields
            if field not in others
        ]
        text = before + heading + lead + columns + "\n".join(rows) + "\n\n" + rest
    before, head, after = text.partition(_RULES)
    _, _, rest = after.partition("\n\n")
    rules = [f"| `{name}` | " + str(rule).replace("|", r"\|") + " |" for name, rule in EVENT_RULES.items()]
    return before + head + "\n".join(rules) + "\n\n" + rest


def clients() -> str:
    """The configurations of all clients, for a receiver of an example's name: with TLS, if they speak it. What stands in front of
    them stays.
    """
    lines = [(DOCS / "clients.md").read_text().partition("\n## log-courier")[0].rstrip()]
    for client, path in CLIENTS.items():
        address = "headrace.example.org", PORTS[path.parent.name]
        text = configuration(client, *address, "/etc/headrace/ca.pem")
        if address[0] not in text:  # it speaks no TLS
            text = configuration(client, *address, "")
        lines += ["", f"## {client}", "", "```", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def verbs() -> str:
    """The verbs as the launcher's help lists them while there is no environment that could run the command line."""
    first = {name: verb(name).help.split("\n\n")[0].replace("\n", " ") for name in VERBS}
    return "".join(f"  {name:11}{text}\n" for name, text in sorted(first.items()))


def chart() -> str:
    """What the chart knows of settings: the units of their values, and defaults, of which it makes memory and times."""
    names = ("drain_time", "process_budget", "connection_budget", "frame_bytes", "inflated_bytes")
    limits = {name: LimitSettings.model_fields[name].default for name in names}
    return json.dumps({"bytes": BYTE_UNITS, "seconds": SECOND_UNITS, "limits": limits}, indent=1) + "\n"


PAGES = {
    DOCS / "settings.md": settings,
    DOCS / "metrics.md": metrics,
    DOCS / "clients.md": clients,
    DOCS / "lake.md": lake,
    ROOT / "cli" / "headrace_cli" / "verbs.txt": verbs,
    ROOT / "deploy" / "helm" / "headrace" / "files" / "settings.json": chart,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page())
