"""Reads settings from a YAML file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.variables import did_you_mean


def read_yaml(path: Path, sections: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The file's sections as mappings, names in lower case, and a sentence for each section not in `sections`, without it.

    Raises `ConfigError` where there is no such mapping.
    """
    import yaml  # a megabyte that most processes do not need

    try:
        document = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if isinstance(document, dict):  # a section whose settings are all commented out
        document = {name: {} if value is None else value for name, value in document.items()}
    if not isinstance(document, dict) or not all(isinstance(value, dict) for value in document.values()):
        raise ConfigError(f"{path}: expected a mapping of sections, each a mapping of settings")
    document = {str(name).lower(): {str(k).lower(): v for k, v in value.items()} for name, value in document.items()}
    problems = []
    for name in sorted(set(document) - set(sections)):
        del document[name]
        problems.append(f"{path}: no section is called {name}{did_you_mean(name, sections)}")
    return document, problems
