"""Finds mutants in a source, and writes them into it, each behind a switch."""

from __future__ import annotations

import ast
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
NO_NUMBERS = ast.JoinedStr | ast.List | ast.Tuple
LOGS = {"log", "_log", "logger"}
FUTURE = b"from __future__ import annotations"
OUTSIDE = {"cli/headrace_cli/machine/tether.py"}
"""Files that run without the environment's packages, so that they cannot import the switch."""


@dataclass(frozen=True)
class Mutant:
    """One place of a file, in bytes of it, and what is there instead; nothing is there instead of a `drop`."""

    folder: str
    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return " ".join(f"{self.file}:{self.line} {self.kind}: {self.old} → {self.new}".split())


def chosen(root: Path, folder: str, count: int) -> list[Mutant]:
    """Returns `count` mutants of a folder, by file and line, that do not overlap. The place of one in their order depends on no
    other, so a change of the folder exchanges few.
    """
    places, counted = {}, Counter[str]()
    for path in sorted((root / folder).glob("**/headrace_*/**/*.py")):
        if (file := str(path.relative_to(root))) not in OUTSIDE:
            lines = (text := path.read_bytes()).decode().split("\n")
            for mutant in mutants(folder, file, text):
                what = f"1 {file} {mutant.kind} {lines[mutant.line - 1]} {mutant.old}"
                counted[what] += 1
                places[mutant] = hashlib.sha256(f"{what} {counted[what]}".encode()).digest()
    kept: list[Mutant] = []
    for mutant in sorted(places, key=places.__getitem__):
        near = [each for each in kept if each.file == mutant.file]
        if len(kept) < count and all(each.end <= mutant.start or mutant.end <= each.start for each in near):
            kept.append(mutant)
    return sorted(kept, key=lambda each: (each.file, each.start))


def write(root: Path, found: list[Mutant]) -> None:
    """Puts all of these mutants, which do not overlap, into their files; their places in the list are their numbers."""
    for file in {mutant.file for mutant in found}:
        text = (root / file).read_bytes()
        for number, mutant in reversed(list(enumerate(found))):
            if mutant.file == file:
                guarded = f"(({mutant.new}) if __mutant__({number}) else ({mutant.old}))"
                if mutant.kind == "drop":
                    guarded = f"if not __mutant__({number}): {mutant.old}"
                text = text[: mutant.start] + guarded.encode() + text[mutant.end :]
        switched = FUTURE + b"; from headrace_mutants import mutant as __mutant__"  # lines keep their numbers
        (root / file).write_bytes(text.replace(FUTURE, switched, 1))


def mutants(folder: str, file: str, text: bytes) -> Iterator[Mutant]:
    """Yields every mutant of a source, by its place; none of one whose annotations are evaluated."""
    if FUTURE not in text:
        return
    begins = [0, *itertools.accumulate(len(line) + 1 for line in text.split(b"\n"))]

    def place(part: Any) -> slice:
        return slice(begins[part.lineno - 1] + part.col_offset, begins[part.end_lineno - 1] + part.end_col_offset)

    for node in within(ast.parse(text), called=False):
        for kind, part, new in changes(node, lambda part: f"({text[place(part)].decode()})"):
            start, end = (where := place(part)).start, where.stop
            if kind != "drop" or not text[begins[part.lineno - 1] : start].strip():
                yield Mutant(folder, file, part.lineno, kind, start, end, text[where].decode(), new)


def within(node: ast.AST, *, called: bool) -> Iterator[ast.AST]:
    """Yields what is evaluated when functions are called, but for what only tells or asserts something."""
    children = list(ast.iter_child_nodes(node))
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            children, called = [*body], True
        case ast.ClassDef(body=body):
            children, called = [*body], False
        case ast.AnnAssign(value=value):
            children = [value] if value else []
        case ast.JoinedStr() | ast.pattern() | ast.arguments() | ast.Assert():
            return
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name) | ast.Name(id=name)))):
            if name in LOGS:
                return
    if called and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node
    for child in children:
        yield from within(child, called=called)


def changes(node: ast.AST, of: Callable[[ast.AST], str]) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yields the kinds of mutants at a node, the part that each replaces, and its source; `of` gives a part, in parentheses."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield "compare", node, f"{of(left)} {COMPARED[type(op)]} {of(right)}"
        case ast.BoolOp(op=op, values=[left, right]):
            yield "and/or", node, f"{of(left)} {'or' if isinstance(op, ast.And) else 'and'} {of(right)}"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sides = [side for side in (left, right) if isinstance(side, NO_NUMBERS | ast.Constant)]
            if all(isinstance(side, ast.Constant) and isinstance(side.value, int | float) for side in sides):
                yield "plus/minus", node, f"{of(left)} {'-' if isinstance(op, ast.Add) else '+'} {of(right)}"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Constant):
                yield "negate", test, f"not {of(test)}"
        case ast.Constant(value=bool(value)):
            yield "bool", node, str(not value)
        case ast.Constant(value=int(value)):
            yield "one more", node, str(value + 1)
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            yield "drop", node, ""
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "drop", node, ""
