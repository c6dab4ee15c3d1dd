"""Environment variables of settings: how they are called, what units their values have, and how secrets come from files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pydantic import BaseModel, BeforeValidator, SecretStr
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


_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)")

_BYTES: Final[Mapping[str, int]] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SECONDS: Final[Mapping[str, Decimal]] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}


def read_bytes(value: Any) -> Any:
    """Bytes as a number, if `value` is text with a unit: KiB, MiB, GiB and TiB are powers of 1024, KB, MB, GB and TB of 1000.

    Anything else stays as it is. Raises ValueError for another unit, or for parts of a byte.
    """
    number, unit = _parted(value)
    if unit is None:
        return value
    if unit not in _BYTES:
        raise ValueError(f"{value} has no unit of bytes: write a number, or one with KiB, MiB, GiB, KB, MB or GB")
    found = number * _BYTES[unit]
    if found != int(found):
        raise ValueError(f"{value} is not a whole number of bytes")
    return int(found)


def read_seconds(value: Any) -> Any:
    """Seconds as a number, if `value` is text with a unit: ms, s, m or min, h, d. Anything else stays as it is.

    Raises ValueError for another unit.
    """
    number, unit = _parted(value)
    if unit is None:
        return value
    if unit not in _SECONDS:
        raise ValueError(f"{value} has no unit of time: write seconds, or a number with ms, s, m, h or d")
    return float(number * _SECONDS[unit])


def _parted(value: Any) -> tuple[Decimal, str | None]:
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    return (Decimal(found[1]), found[2].lower()) if found is not None else (Decimal(0), None)


Bytes = Annotated[int, BeforeValidator(read_bytes)]
Seconds = Annotated[float, BeforeValidator(read_seconds)]
WholeSeconds = Annotated[int, BeforeValidator(read_seconds)]
