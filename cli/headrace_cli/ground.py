"""The ground of every verb: how it runs, its exit statuses, the checkout that it runs from, the user's folders."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from headrace_common.operations.errors import EXIT_CONFIG, ConfigError, HeadraceError
from headrace_common.operations.errors import CommandError as CommandError

EXIT_FAILED: Final = 1
EXIT_NOTHING_RUNS: Final = 3
EXIT_DOUBT: Final = 4


def run(verbs: Callable[..., Any]) -> None:
    """Run the verb that the arguments name. Print Headrace's own errors as one sentence on standard error."""
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal need not know ✓, and nothing that clients wrote ends a file
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")
    try:
        _check_current_folder()
        verbs(prog_name="headrace")
    except CommandError as error:
        status, text = error.status, str(error)
    except ConfigError as error:
        status, text = EXIT_CONFIG, str(error)
    except HeadraceError as error:
        status, text = EXIT_FAILED, str(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `headrace logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    print(f"headrace: {text}", file=sys.stderr)
    sys.exit(status)


def _check_current_folder() -> None:
    """Raise `CommandError` if the current folder was deleted: libraries would end without saying so."""
    try:
        Path.cwd()
    except OSError as error:
        raise CommandError(f"The current folder is gone ({error.strerror}): go to another.") from error


def module(name: str) -> tuple[str, ...]:
    """Return the command that runs a module of Headrace. -P keeps the current folder out of Python's path."""
    return (sys.executable, "-P", "-m", name)


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
            from headrace_common.operations.variables import did_you_mean

            meant = did_you_mean(name, there) or "."
            raise CommandError(f"{what} {name}: it is one of {', '.join(there)}{meant}", status=2)


def check_checkout(verb: str) -> None:
    """Raise `CommandError` if the command line was installed from its packages: `verb` needs the files of a checkout."""
    if not IN_CHECKOUT:
        raise CommandError(f"{verb} needs a checkout of the repository: call ./headrace there.")


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
