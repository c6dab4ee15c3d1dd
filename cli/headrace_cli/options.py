"""Options that several verbs have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
