"""Puts a mutant in the product's place, in this process, and takes it away again.

The mutated source is compiled beside the module, and the functions whose code differs get that code: whoever imported them, or
holds objects of their classes, meets it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tests.simulation.mutants import Also, Mutant


def mutated_source(change: Also | Mutant) -> str:
    """Raises AssertionError unless the change's place occurs once."""
    module = importlib.import_module(change.module)
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert source.count(change.old) == 1, f"{change.old!r} occurs {source.count(change.old)} times in {change.module}"
    return source.replace(change.old, change.new)


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
    """Inside the block, the product is the mutant."""
    with contextlib.ExitStack() as undo:
        changes: tuple[Also | Mutant, ...] = (mutant, *mutant.also)
        for change in changes:
            module = importlib.import_module(change.module)
            copy = ModuleType(module.__name__)
            copy.__file__ = module.__file__
            exec(compile(mutated_source(change), str(module.__file__), "exec"), copy.__dict__)
            functions, changed = _functions(module), 0
            for name, other in _functions(copy).items():
                function = functions[name]
                if function.__code__.co_code != other.__code__.co_code or (
                    function.__code__.co_consts != other.__code__.co_consts
                    or function.__code__.co_names != other.__code__.co_names
                ):
                    undo.callback(setattr, function, "__code__", function.__code__)
                    function.__code__ = other.__code__
                    changed += 1
            assert changed, f"{mutant.name} changes no function"
        yield
