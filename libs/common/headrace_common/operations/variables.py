"""Reads settings from variables and files of secrets, with units, and names those that are wrong."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource
from typing_extensions import override

from headrace_common.operations.errors import ConfigError

PREFIX: Final = "HEADRACE_"

PROTOCOLS: Final = "headrace.protocols"
"""The group of entry points of the installed protocols. Each is named like its protocol's section of settings."""

_NAME_LIKENESS: Final = 0.9
"""Similarity from which a name counts as another one that is misspelt."""

_LINKS: Final = ("tcp://", "udp://", "sctp://")
"""Values by which Kubernetes tells every pod of each service: of one called headrace-ops as HEADRACE_OPS_PORT."""

_UNDERSCORES: Final = re.compile("_+")


def variable(section: str, name: str) -> str:
    """Returns the environment variable of a setting."""
    return f"{PREFIX}{section}__{name}".upper()


@cache
def named_protocols() -> Mapping[str, EntryPoint]:
    """Returns the entry points of the protocols that are installed, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=PROTOCOLS), key=lambda entry: entry.name)}


def refuse_near(cls: type[BaseSettings], values: Mapping[str, str | None]) -> None:
    """Raises `ConfigError` if one of the variables is no setting, but resembles one of `cls`: the process would start without it.

    Wrong names in a section of `cls` are refused anyway.
    """
    settings = {}
    for section, name, info in each_setting(cls):
        direct = variable(section, name)
        for each in (direct, *([f"{direct}_FILE"] if _holds_secret(info.annotation) else ())):
            settings[_UNDERSCORES.sub("_", each)] = each
    for name, value in values.items():
        given = name.upper()
        section, _, _ = given.removeprefix(PREFIX).lower().partition("__")
        if not given.startswith(PREFIX) or section in cls.model_fields or (value or "").startswith(_LINKS):
            continue
        if near := get_close_matches(_UNDERSCORES.sub("_", given), settings, n=1, cutoff=_NAME_LIKENESS):
            raise ConfigError(f"{given}: nobody reads it; did you mean {settings[near[0]]}?")


def each_setting(cls: type[BaseSettings]) -> list[tuple[str, str, FieldInfo]]:
    """Returns (section, name, declaration) of every setting of `cls`, in order, for documentation, schema and tests."""
    rows = []
    for section, info in cls.model_fields.items():
        model = info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        rows += [(section, name, field) for name, field in model.model_fields.items()]
    return rows


def read_secrets(cls: type[BaseSettings], values: dict[str, str | None]) -> dict[str, str | None]:
    """Returns `values`, with each secret that a ``…_FILE`` variable names read from its file. Raises `ConfigError`."""
    for section, name, info in each_setting(cls):
        direct = variable(section, name).lower()
        path = values.pop(f"{direct}_file", None) if _holds_secret(info.annotation) else None
        if path is None:
            continue
        if values.get(direct):
            raise ConfigError(f"{direct.upper()} and {direct.upper()}_FILE are both set")
        try:
            values[direct] = Path(path).read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{direct.upper()}_FILE: {error}") from error
    return values


class Environment(EnvSettingsSource):
    """The environment, plus the secrets read from the files that ``…_FILE`` variables name."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        values = dict(super()._load_env_vars())
        refuse_near(self.settings_cls, values)
        return read_secrets(self.settings_cls, values)

    @override
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Leaves what is not JSON as it is: the setting's type refuses it, with its full name."""
        with contextlib.suppress(ValueError):
            return super().decode_complex_value(field_name, field, value)
        return value


def explain(problem: Mapping[str, Any]) -> str:
    """Returns one sentence for a problem that pydantic found: the variable and what is wrong with it."""
    name = f"{PREFIX}{'__'.join(map(str, problem['loc']))}".upper()
    unknown = problem["type"] == "extra_forbidden"
    message = "there is no such setting" if unknown else problem["msg"].removeprefix("Value error, ")
    return f"{name}: {message}" if problem["loc"] else message


def _holds_secret(annotation: Any) -> bool:
    """Returns whether a setting of this type is a secret or a collection that contains secrets."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_holds_secret(info.annotation) for info in annotation.model_fields.values())
    return annotation is SecretStr or any(map(_holds_secret, get_args(annotation)))


QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)")

BYTE_UNITS: Final[Mapping[str, int]] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
SECOND_UNITS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def in_units(units: Mapping[str, float], value: Any) -> Any:
    """Returns the number, if `value` is text with one of the `units`, in letters of any case. Anything else stays as it is.

    Raises ValueError for another unit.
    """
    found = QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    if found[2].lower() not in units:
        raise ValueError(f"{value} has none of the units {', '.join(units)}")
    return round(float(found[1]) * units[found[2].lower()], 6)


read_bytes = partial(in_units, BYTE_UNITS)
read_seconds = partial(in_units, SECOND_UNITS)
Bytes = Annotated[int, BeforeValidator(read_bytes)]
Seconds = Annotated[float, BeforeValidator(read_seconds)]
WholeSeconds = Annotated[int, BeforeValidator(read_seconds)]
