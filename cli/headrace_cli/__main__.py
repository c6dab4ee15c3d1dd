"""The command line. A verb's module is imported only when the verb is called, so that the command line starts quickly."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from headrace_common import __version__
from typer.core import TyperCommand, TyperGroup

from headrace_cli.ground import CommandError, run

VERBS: Final = (
    *("up", "status", "down", "query", "demo", "smoke", "tap", "snippet", "validate"),
    *("lake", "live", "explain", "send", "conform", "check-loss", "quarantine", "test"),
)
"""The verbs, in the order in which the help lists them. Each has a module of its name, and is in its `app`."""
ELSEWHERE: Final = {"conform": "headrace_conform", "live": "headrace_live"}
"""Verbs of packages of their own, which need not be installed."""
LISTED: Final = Path(__file__).with_name("verbs.txt")


def verb(name: str) -> Any:
    """Return a verb as its module has it. Raises `CommandError` if its package is not installed."""
    package = ELSEWHERE.get(name)
    if package is not None and find_spec(package) is None:
        raise CommandError(f"{name} is of another package, which is not installed: {package.replace('_', '-')}.")
    module = import_module(f"{package}.verb" if package else f"headrace_cli.verbs.{name.replace('-', '_')}")
    return typer.main.get_group(module.app).commands[name]


class Verbs(TyperGroup):
    """The verbs. A list of them needs no module: verbs.txt says what each does."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        told = dict(line.split(maxsplit=1) for line in LISTED.read_text().splitlines())
        for name in VERBS:
            self.add_command(TyperCommand(name, help=told.get(name)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb that `args` begin with, its command, and the arguments that follow."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, verb(name) if name else None, rest


def _exit(status: int | None, **_: object) -> None:
    raise typer.Exit(status or 0)


app = typer.Typer(
    name="headrace",
    help="Take logs and events off the wire into Kafka and the lake. Clients are acknowledged only after Kafka has stored.",
    cls=Verbs,
    result_callback=_exit,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 130},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the verb that the arguments name."""
    run(app)


if __name__ == "__main__":
    main()
