"""The ground of every verb: how it runs, its exit statuses, the checkout that it runs from, the user's folders."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NoReturn

from headrace_common.operations.errors import EXIT_CONFIG, EXIT_INTERRUPTED, EXIT_UNWRITTEN, ConfigError, HeadraceError
from headrace_common.operations.errors import CommandError as CommandError

EXIT_FAILED: Final = 1
EXIT_NOTHING_RUNS: Final = 3
EXIT_DOUBT: Final = 4

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run(verbs: Callable[..., Any]) -> None:
    """Run the verb that the arguments name. Print Headrace's own errors as one sentence on standard error."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (None: it is closed)
    try:
        if isinstance(sys.stdout, TextIOWrapper):  # a terminal need not know ✓, nor any file what clients wrote
            sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")
        try:
            verbs(prog_name="headrace")
        finally:
            sys.stdout.flush()
    except BaseException as error:
        status, text = _ended(error)
    if status == EXIT_UNWRITTEN:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python, which flushes it once more, fails
    if text:
        with suppress(OSError):
            print(f"headrace: {text}", file=sys.stderr, flush=True)
    sys.exit(status)


def _ended(error: BaseException) -> tuple[int, str]:
    """Return the exit status of a verb that `error` ended, and what to say. Raises it if it is a bug, or says so itself."""
    if any(isinstance(cause, KeyboardInterrupt) or str(cause) == "Query interrupted" for cause in _causes(error)):
        return EXIT_INTERRUPTED, ""  # DuckDB and others make errors of their own of a Ctrl-C
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):  # typer's, or rich's
        error = error.__context__
    if isinstance(error, BrokenPipeError):  # `headrace tap | head`
        return EXIT_UNWRITTEN, ""
    if isinstance(error, OSError) and error.errno in _FULL:
        return EXIT_UNWRITTEN, f"The output cannot be written ({error.strerror})."
    if isinstance(error, ConfigError):
        return EXIT_CONFIG, str(error)
    if isinstance(error, HeadraceError):
        return (error.status if isinstance(error, CommandError) else EXIT_FAILED), str(error)
    raise error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that were being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__context__


def module(name: str) -> tuple[str, ...]:
    """Return the command that runs a module of Headrace. -P keeps the current folder out of Python's path."""
    return (sys.executable, "-P", "-m", name)


PASSED: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a verb whose options, `--help` too, are another package's."""


def become(
    package: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None, without: Sequence[str] = ()
) -> NoReturn:
    """Run a package in place of this process, so that signals reach it, with `settings` beside the environment, of which it does
    not get the variables `without`.

    Raises `CommandError` if it is not installed.
    """
    if find_spec(package) is None:
        what = arguments[0] if arguments else package
        raise CommandError(f"{what} is of another package, which is not installed: {package.replace('_', '-')}.")
    program, *rest = module(package)
    kept = {name: value for name, value in os.environ.items() if name not in without}
    os.execve(program, [program, *rest, *arguments], {**kept, **(settings or {})})  # noqa: S606


ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout, if the command line runs from one: it may also be installed from its packages."""
IN_CHECKOUT: Final = (ROOT / "headrace").is_file() and (ROOT / "cli" / "headrace_cli").is_dir()
PROGRAM: Final = "./headrace" if IN_CHECKOUT else "headrace"
"""How a user calls the command line."""


def _base(variable: str, default: str) -> Path:
    """Return the folder for the user's files of one kind, as the XDG's variables or their defaults say."""
    named = os.environ.get(variable, "")
    return (Path(named) if os.path.isabs(named) else Path.home() / default) / "headrace"


DEFAULT_STATE: Final = ROOT / ".headrace" if IN_CHECKOUT else _base("XDG_STATE_HOME", ".local/state")
"""The default state folder, whatever the current folder is: in the checkout, else in the user's folder for state."""


def command(verb: str, state: Path) -> str:
    """Return how to call a verb for a state folder, to be pasted."""
    option = "" if state == DEFAULT_STATE else f" --state {shlex.quote(str(state))}"
    return f"{PROGRAM} {verb}{option}"


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `CommandError` with status 2 for the first of `names` that is not known."""
    there = list(known)
    for name in names:
        if name not in there:
            raise CommandError(f"{what} {name}: it is one of {', '.join(there)}.", status=2)


def cache() -> Path:
    """Return the folder for downloads, one for each user; make it if it is missing. Raises `CommandError`."""
    folder = _base("XDG_CACHE_HOME", ".cache")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"The cache folder {folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME to a folder that you may write."
        ) from error
    return folder
