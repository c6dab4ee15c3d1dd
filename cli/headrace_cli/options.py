"""Options that several verbs have."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer
from headrace_common.operations.networks import brokers

from headrace_cli.ground import CommandError


def examples(*commands: str) -> str:
    """Return the end of a verb's help."""
    return "\n\n".join(["Examples:", *commands])


def brokers_named(text: str | None) -> str | None:
    """Return `text` if it is HOST:PORT, several with commas, or None. Raises `CommandError`."""
    try:
        if text is not None:
            brokers(text)
    except ValueError as error:
        raise CommandError(f"--kafka {text}: expected HOST:PORT, several with commas.", status=2) from error
    return text


NOW: Final = "now"
BEGINNING: Final = "beginning"
_AGO: Final = re.compile(r"(\d{1,5})(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_moment(text: str, option: str, now: datetime) -> datetime:
    """Read an ISO 8601 time (UTC unless it names a zone), or how long ago: ``10m``. Raises `CommandError`."""
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        also = f", {NOW} or {BEGINNING}" if option == "--from" else ""
        expected = f"a time such as 2026-11-23T08:00 (UTC unless it has a zone), or 30s, 10m, 2h, 1d ago{also}"
        raise CommandError(f"{option} {text}: expected {expected}.", status=2) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_span(text: str, option: str) -> float:
    """Read how long something lasts, in seconds: ``30s``, ``5m``. Raises `CommandError`."""
    if (found := _AGO.fullmatch(text)) is None or not int(found[1]):
        raise CommandError(f"{option} {text}: expected how long, as 30s, 10m, 2h or 1d.", status=2)
    return timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()


StateOption = Annotated[
    Path,
    typer.Option("--state", envvar="HEADRACE_STATE", help="Folder with the stack's state.", show_default=".headrace"),
]
KafkaOption = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        metavar="HOST:PORT",
        callback=brokers_named,
        help="Use this Kafka (HEADRACE_KAFKA__… says how); the default is the stack's.",
    ),
]
LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="FOLDER|URL",
        help="The tables, also s3://, abfss:// or gs:// (with AWS_…, AZURE_…, GOOGLE_…); default: the lake in --state.",
    ),
]
UrlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="NAME=URL",
        help="Metrics of a part, also as NAME=dns://HOST:PORT; may be repeated. Default: the stack in --state.",
    ),
]
CaOption = Annotated[
    str,
    typer.Option(
        "--ca", metavar="FILE|system", help="Speak TLS, and trust the authorities in this PEM file, or this machine's."
    ),
]
