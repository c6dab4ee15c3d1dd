"""A shell for queries: lines become statements, a name completes, what was typed is remembered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb

from headrace_cli.ground import CommandError

_FIRST: Final = "headrace> "
_NEXT: Final = "     ...> "
_KEPT: Final = 1_000
"""Lines of history that are kept."""
_DELIMITERS: Final = " \t\n,()=<>*;'\"+/|"
_RESERVED: Final = {"offset", "from", "to", "table"}
"""Columns of ours that SQL takes for words of its own."""
_ENDS: Final = {"exit", "quit", "\\q"}


def shell(run: Callable[[str], None], columns: Mapping[str, Sequence[str]], named: Iterable[str], history: Path) -> int:
    """Read statements until Ctrl-D and `run` each; return 0. A `CommandError` is said, and the shell goes on.

    `columns`: by table. `history`: a file in a folder that may be missing; then nothing is kept.
    """
    import readline  # only here: it changes how every `input` of the process reads

    words = Words(columns, named)
    readline.set_completer(lambda text, number: words.complete(text, number, quoted=_is_quoted()))
    readline.set_completer_delims(_DELIMITERS)
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    readline.set_history_length(_KEPT)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        return converse(input, run)
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            history.touch(mode=0o600)
            readline.write_history_file(history)


def converse(ask: Callable[[str], str], run: Callable[[str], None]) -> int:
    """The shell's loop: `ask` gives a line for a prompt, or raises `EOFError` at the end, `KeyboardInterrupt` for another try."""
    lines: list[str] = []
    while True:
        try:
            line = ask(_NEXT if lines else _FIRST)
            if not lines and line.strip().rstrip(";").lower() in _ENDS:
                return 0
            lines.append(line)
            if not ends(lines):
                continue
            for statement in statements("\n".join(lines)):
                try:
                    run(statement)
                except CommandError as error:
                    print(error)
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
        lines = []


def ends(lines: Sequence[str]) -> bool:
    """Whether a statement ends with the last of `lines`: by an empty line, or by a semicolon outside of quotes."""
    whole = "\n".join(lines)
    if not lines[-1].strip():
        return True
    return whole.rstrip().endswith(";") and not any(whole.count(quote) % 2 for quote in "'\"")


def statements(text: str) -> list[str]:
    """The statements in `text`, without their semicolons. What cannot be parsed is one."""
    try:
        found = [statement.query for statement in duckdb.extract_statements(text)]
    except duckdb.Error:
        found = [text]
    return [query for each in found if (query := each.strip().rstrip(";").strip())]


class Words:
    """The completions of a word: a table, a column, a named query; after ``table.`` only its columns."""

    def __init__(self, columns: Mapping[str, Sequence[str]], named: Iterable[str]) -> None:
        self._columns = columns
        self._words = sorted({*columns, *named, *(name for names in columns.values() for name in names)})

    def complete(self, text: str, number: int, *, quoted: bool = False) -> str | None:
        """The completion of `text` with this number, from 0; None after the last."""
        found = self.candidates(text, quoted=quoted)
        return found[number] if number < len(found) else None

    def candidates(self, text: str, *, quoted: bool = False) -> list[str]:
        """All completions. A column that is a word of SQL gets quotes, unless it has one already: readline adds the other."""
        table, dot, start = text.rpartition(".")
        words = self._words if not dot else sorted(self._columns.get(table, ()))
        found = [word for word in words if word.startswith(start)]
        return [f"{table}{dot}{_plain(word, quoted=quoted)}" for word in found]


def _plain(word: str, *, quoted: bool) -> str:
    return word if quoted else f'"{word}"' if word in _RESERVED else word


def _is_quoted() -> bool:
    """Whether a quotation mark stands before the word that is completed."""
    import readline

    begin = readline.get_begidx()
    return begin > 0 and readline.get_line_buffer()[begin - 1] == '"'
