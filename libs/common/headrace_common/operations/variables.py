"""Environment variables of settings: how they are called, and how secrets come from files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from headrace_common.operations.errors import ConfigError

PREFIX: Final = "HEADRACE_"


def variable(section: str, name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{section}__{name}".upper()


def misspelt(names: Iterable[str], sections: Collection[str]) -> list[str]:
    """One sentence for each variable of ours whose section no part of Headrace has: nobody reads it."""
    said = []
    for name in sorted(names):
        section, separator, _ = name.upper().removeprefix(PREFIX).lower().partition("__")
        if name.upper().startswith(PREFIX) and separator and section not in sections:
            said.append(f"{name}: no section is called {section}{did_you_mean(section, sections)}")
    return said


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The end of a sentence about a name that is not there: the one that was probably meant."""
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def each_setting(cls: type[BaseSettings]) -> list[tuple[str, str, FieldInfo]]:
    """(section, name, declaration) of every setting of `cls`, in order, for documentation, schema and tests."""
    rows = []
    for section, info in cls.model_fields.items():
        model = info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        rows += [(section, name, field) for name, field in model.model_fields.items()]
    return rows


def read_secrets(cls: type[BaseSettings], values: dict[str, str | None]) -> dict[str, str | None]:
    """`values`, with each secret that a ``…_FILE`` variable names read from its file. Raises `ConfigError`."""
    for section, name, info in each_setting(cls):
        direct = variable(section, name).lower()
        path = values.pop(f"{direct}_file", None) if _holds_secret(info.annotation) else None
        if path is None:
            continue
        if values.get(direct):
            raise ConfigError(f"{direct.upper()} and {direct.upper()}_FILE are both set")
        try:
            values[direct] = Path(path).read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{direct.upper()}_FILE: {error}") from error
    return values


def _holds_secret(annotation: Any) -> bool:
    """Whether a setting of this type is a secret or a collection that contains secrets."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_holds_secret(info.annotation) for info in annotation.model_fields.values())
    return annotation is SecretStr or any(map(_holds_secret, get_args(annotation)))
