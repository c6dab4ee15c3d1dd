"""Verbs of other parts: ``lake``, commands of the landing job with the settings of the stack, and ``live``, the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from headrace_cli.ground import DEFAULT_STATE, CommandError
from headrace_cli.ground import module as command_of

LAKE: Final = {
    "replay": "Land again what the tables have lost.",
    "erase": "Erase records on request; without --apply, count them.",
    "mirror": "Keep Iceberg tables that show the same rows.",
}
LIVE: Final = "Serve the live page: what the services do, each second, in a browser. It reads, and changes nothing."
_PASSED: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a verb whose options, `--help` too, are its part's."""


def run(arguments: Sequence[str], path: Path) -> NoReturn:
    """Run a command of the landing job in place of this process, with the settings of the stack in `path`.

    If no stack runs there, the environment says where Kafka is, or the tables that a stack has left are enough. Raises
    `CommandError` without either, unless help is asked for.
    """
    from headrace_common.operations.settings import environment
    from headrace_common.operations.variables import variable

    from headrace_cli.stack.broker import HOST
    from headrace_cli.stack.stack import KAFKA_PORT, base_environment, lake_environment, of_another_spark
    from headrace_cli.stack.state import StateFolder

    state = StateFolder(path)
    record = state.what_runs()
    base: Mapping[str, str] = {}
    if record:
        base = base_environment(record["kafka"], embedded=record["embedded"])
    elif variable("kafka", "bootstrap_servers") not in os.environ and not {"-h", "--help"} & {*arguments}:
        if not state.lake.is_dir():
            raise state.nothing_runs("say by HEADRACE_… where Kafka is")
        base = environment("kafka", bootstrap_servers=f"{HOST}:{KAFKA_PORT}")  # erase does without Kafka
    if base:
        become("headrace_lake", arguments, lake_environment(state, base), without=of_another_spark())
    become("headrace_lake", arguments)


def _verb(name: str) -> Callable[..., None]:
    def verb(
        context: typer.Context,
        state: Annotated[Path, typer.Option("--state", envvar="HEADRACE_STATE")] = DEFAULT_STATE,
    ) -> None:
        run([name, *context.args], state)

    return verb


def become(
    module: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None, without: Sequence[str] = ()
) -> NoReturn:
    """Run a module in place of this process, so that signals reach it, with `settings` beside the environment, of which it does
    not get the variables `without`.

    Raises `CommandError` if it is not installed.
    """
    if find_spec(module) is None:
        raise CommandError(f"{arguments[0]} is of another package, which is not installed: {module.replace('_', '-')}.")
    program, *rest = command_of(module)
    kept = {name: value for name, value in os.environ.items() if name not in without}
    os.execve(program, [program, *rest, *arguments], {**kept, **(settings or {})})  # noqa: S606


lake = typer.Typer(
    name="lake", help="Land again, change or erase rows in the tables of the stack.", no_args_is_help=True
)
for _name, _help in LAKE.items():
    lake.command(_name, help=f"{_help} --help says how.", context_settings=_PASSED)(_verb(_name))

app = typer.Typer()
app.add_typer(lake)


@app.command(help=LIVE, context_settings=_PASSED)
def live(context: typer.Context) -> None:
    """Run the package that serves the page."""
    become("headrace_live", ["live", *context.args])
