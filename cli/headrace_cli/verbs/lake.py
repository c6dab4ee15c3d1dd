"""``lake``: commands of the landing job, with the settings of the stack."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from headrace_cli.ground import DEFAULT_STATE, PASSED, become

COMMANDS: Final = {
    "replay": "Land again what the tables have lost.",
    "erase": "Erase records on request; without --apply, count them.",
    "mirror": "Keep Iceberg tables that show the same rows.",
}


def run(arguments: Sequence[str], path: Path) -> NoReturn:
    """Run a command of the landing job in place of this process, with the settings of the stack in `path`.

    If no stack runs there, the environment says where Kafka is, or the tables that a stack has left are enough. Raises
    `CommandError` without either, unless help is asked for.
    """
    mirror = arguments[0] == "mirror"
    package, passed = ("headrace_mirror", arguments[1:]) if mirror else ("headrace_lake", arguments)
    if {"-h", "--help"} & {*passed}:
        become(package, passed)
    from headrace_common.operations.settings import environment
    from headrace_common.operations.variables import variable

    from headrace_cli.stack.broker import HOST
    from headrace_cli.stack.stack import KAFKA_PORT, base_environment, lake_environment, of_another_spark
    from headrace_cli.stack.state import StateFolder

    state = StateFolder(path)
    if mirror:
        become(package, passed, environment("mirror", lake=state.lake))
    record = state.what_runs()
    base: Mapping[str, str] = {}
    if record:
        base = base_environment(record["kafka"], embedded=record["embedded"])
    elif variable("kafka", "bootstrap_servers") not in os.environ:
        if not state.lake.is_dir():
            raise state.nothing_runs("say by HEADRACE_… where Kafka is")
        base = environment("kafka", bootstrap_servers=f"{HOST}:{KAFKA_PORT}")  # erase does without Kafka
    if base:
        become(package, passed, lake_environment(state, base), without=of_another_spark())
    become(package, passed)


def _verb(name: str) -> Callable[..., None]:
    def verb(
        context: typer.Context,
        state: Annotated[Path, typer.Option("--state", envvar="HEADRACE_STATE")] = DEFAULT_STATE,
    ) -> None:
        run([name, *context.args], state)

    return verb


lake = typer.Typer(
    name="lake", help="Land again or erase rows of the stack's tables, or mirror them.", no_args_is_help=True
)
for _name, _help in COMMANDS.items():
    lake.command(_name, help=f"{_help} --help says how.", context_settings=PASSED)(_verb(_name))

app = typer.Typer()
app.add_typer(lake)
