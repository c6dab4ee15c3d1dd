#!/usr/bin/env python3
"""Compiles the modules that an image's programs load: all of ours, all that these load, and those that are named.

    python release/bytecode.py MODULE…    by the Python of the environment that is copied into the image

The others, a third of an environment, get no bytecode. A hash instead of a time makes it the same in every build.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pkgutil
import py_compile
import sys
import sysconfig
from pathlib import Path


def load(names: list[str]) -> None:
    """Imports all modules of ours, without those for which the environment lacks a package, and `names`."""
    for top in [each.name for each in pkgutil.iter_modules() if each.name.startswith("headrace_")]:
        for each in pkgutil.walk_packages(importlib.import_module(top).__path__, f"{top}."):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(each.name)
    for name in names:
        importlib.import_module(name)


def main() -> None:
    load(sys.argv[1:])  # writes it, also of modules that load in vain, as some ask for what may be there
    for written in Path(sysconfig.get_path("purelib")).rglob("*.pyc"):
        source = importlib.util.source_from_cache(written)
        py_compile.compile(source, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


if __name__ == "__main__":
    main()
