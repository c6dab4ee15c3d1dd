"""The product with one guard, decision, budget or ledger rule removed or reversed: seeds must tell each from the real one.

``python -m tests.simulation.mutants [NAME …]`` says a seed that does.
Status 1: one is not found.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from tests.simulation.__main__ import run

TABLE: Final = Path(__file__).with_suffix(".toml")
MOST: Final = 500
"""Seeds within which a mutant is hunted. The quick tier runs 50, within which 169 of 183 are found, and `--all` 100: 172."""


@dataclass(frozen=True)
class Also:
    """A change: `old` occurs once in `module`, and becomes `new`. A mutant's second one takes a guard away that would hide it."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A change as well. `protocol`: whose seeds must find it. `seed`: the first that did when it was last hunted."""

    name: str
    module: str
    old: str
    new: str
    protocol: str = "forward"
    seed: int = 0
    also: tuple[Also, ...] = ()


def mutants(table: Path) -> dict[str, Mutant]:
    """The mutants of a table, by name."""
    rows = tomllib.loads(table.read_text())["mutant"]
    made = [Mutant(**{**row, "also": tuple(Also(**also) for also in row.get("also", ()))}) for row in rows]
    return {mutant.name: mutant for mutant in made}


MUTANTS: Final = mutants(TABLE)


# Putting one in the product's place


def _functions(holder: Any) -> dict[str, FunctionType]:
    """The functions of a module or class and of the classes in it, by name."""
    found: dict[str, FunctionType] = {}
    where = holder.__name__ if isinstance(holder, ModuleType) else holder.__module__
    for name, thing in vars(holder).items():
        inner = thing.fget if isinstance(thing, property) else inspect.unwrap(thing) if callable(thing) else thing
        if isinstance(thing, staticmethod | classmethod):
            inner = thing.__func__
        if isinstance(inner, FunctionType) and inner.__module__ == where:
            found[name] = inner
        elif isinstance(inner, type) and inner.__module__ == where:
            found |= {f"{name}.{each}": function for each, function in _functions(inner).items()}
    return found


@contextlib.contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Inside the block, the product is the mutant. Raises AssertionError unless each place of a change occurs once.

    The mutated source is compiled beside the module, and the functions whose code differs get that code: whoever imported them,
    or holds objects of their classes, meets it.
    """
    changes: tuple[Also | Mutant, ...] = (mutant, *mutant.also)
    with contextlib.ExitStack() as undo:
        for change in changes:
            module = importlib.import_module(change.module)
            assert module.__file__ is not None
            source = Path(module.__file__).read_text()
            assert source.count(change.old) == 1, (
                f"{change.old!r} is {source.count(change.old)} times in {change.module}"
            )
            copy = ModuleType(module.__name__)
            copy.__file__ = module.__file__
            exec(compile(source.replace(change.old, change.new), module.__file__, "exec"), copy.__dict__)
            functions, changed = _functions(module), 0
            for name, other in _functions(copy).items():
                code, new = functions[name].__code__, other.__code__
                if (code.co_code, code.co_consts, code.co_names) != (new.co_code, new.co_consts, new.co_names):
                    undo.callback(setattr, functions[name], "__code__", code)
                    functions[name].__code__ = new
                    changed += 1
            assert changed, f"{mutant.name} changes no function"
        yield


# Finding it


def hunt(mutant: Mutant) -> int | None:
    """A seed that finds it: that of the table, unless that means something else by now, or the first that does."""
    with mutated(mutant):
        for seed in (mutant.seed, *range(MOST)):
            if failures := run(seed, mutant.protocol).failures:
                print(f"{mutant.name}: seed {seed} of {mutant.protocol}: {failures[0]}", flush=True)
                return seed
    print(f"{mutant.name}: not found in {MOST} seeds of {mutant.protocol}", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(None in [hunt(MUTANTS[name]) for name in sys.argv[1:] or MUTANTS])
