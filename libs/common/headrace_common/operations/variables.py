"""Where settings come from: variables and their units, files of secrets, a YAML file; and the messages about wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
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

SECTIONS: Final = ("kafka", "topics", "listen", "tls", "limits", "ops", "log", "lake")
_NEAR: Final = 0.75
"""Similarity to a section's name from which another name counts as misspelt."""

_OF_BUILDS: Final = frozenset(
    ("CA", "CARGO_CONFIG", "MAVEN_REPOSITORY", "NATIVE", "PIP_CONF", "PYTHON_IMAGE", "REGISTRY", "TAG")
)
_OF_TOOLS: Final = _OF_BUILDS | frozenset(("COMPLETE", "KUBERNETES_SCHEMAS", "STACK", "STATE", "VENV"))
"""Variables that the command line, its scripts, docker compose and `headrace_common.record.native` read."""

_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")
"""Ends of the variables that Kubernetes gives every pod for each service, ours too."""

_UNDERSCORES: Final = re.compile("_+")

_DOORS: Final = frozenset(
    (
        "allow",
        "ca",
        "certificate",
        "curve_clients",
        "curve_devices",
        "key",
        "rights",
        "security_protocol",
        "trusted_proxies",
    )
)
"""Settings outside of the section tls that say who may connect, or how safely, and hold no secret."""


def variable(section: str, name: str) -> str:
    """Returns the environment variable of a setting."""
    return f"{PREFIX}{section}__{name}".upper()


@cache
def named_protocols() -> Mapping[str, EntryPoint]:
    """Returns the entry points of the protocols that are installed, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=PROTOCOLS), key=lambda entry: entry.name)}


def sections() -> frozenset[str]:
    """Returns every section of any part of Headrace: one YAML file may configure all parts."""
    return frozenset((*SECTIONS, *named_protocols()))


def _is_strange(section: str) -> bool:
    """Returns whether no section is called so, nor may be where other protocols are installed.

    An image has one protocol, and its file or environment may configure all.
    """
    known = sections()
    alone = len(named_protocols()) < 2 and not get_close_matches(section, known, cutoff=_NEAR)
    return section not in known and not alone


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Returns one sentence for each variable of ours that no part of Headrace reads."""
    said = []
    for name, value in sorted(environment.items()):
        rest = name.upper().removeprefix(PREFIX)
        if rest == name.upper() or rest in _OF_TOOLS or rest.startswith("TEST_"):
            continue
        section, separator, _ = rest.lower().partition("__")
        if separator and _is_strange(section):
            said.append(f"{name}: no section is called {section}")
        elif not separator and (not _LINK.search(rest) or value.isdecimal()):  # a port as `tcp://…` is Kubernetes'
            said.append(f"{name}: nobody reads it")
    return said


def refuse_near_guards(cls: type[BaseSettings], names: Iterable[str]) -> None:
    """Raises `ConfigError` if one of `names` is no setting, but resembles a secret's or another guard's: without that setting the
    process would start open. Wrong names in a section of `cls` are refused anyway.
    """
    guards = {}
    for section, name, info in each_setting(cls):
        secret = _holds_secret(info.annotation)
        if secret or section == "tls" or name in _DOORS:
            for each in (variable(section, name), *([f"{variable(section, name)}_FILE"] if secret else ())):
                guards[_UNDERSCORES.sub("_", each)] = each
    for name in names:
        section, separator, _ = name.upper().removeprefix(PREFIX).lower().partition("__")
        if name.upper().startswith(PREFIX) and not (separator and section in cls.model_fields):
            near = get_close_matches(_UNDERSCORES.sub("_", name.upper()), guards, n=1, cutoff=0.9)
            if near:
                raise ConfigError(f"{name.upper()}: nobody reads it; did you mean {guards[near[0]]}?")


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
        for section in self.settings_cls.model_fields:
            name = f"{PREFIX}{section}"
            if name.lower() in values:
                raise ConfigError(f"{name.upper()} is a section: its settings are {name.upper()}__<NAME>")
        refuse_near_guards(self.settings_cls, values)
        return read_secrets(self.settings_cls, values)

    @override
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:  # pydantic-settings would name the section alone
            named = (
                variable(section, name) for section, name, info in each_setting(self.settings_cls) if info is field
            )
            raise ConfigError(f"{next(named, field_name)}: not JSON") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the file's sections as mappings, names in lower case. Raises `ConfigError`, for a section that no part has, too."""
    import yaml  # a megabyte that most processes do not need

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if isinstance(document, dict):  # a section whose settings are all commented out
        document = {name: {} if value is None else value for name, value in document.items()}
    if not isinstance(document, dict) or not all(isinstance(value, dict) for value in document.values()):
        raise ConfigError(f"{path}: expected a mapping of sections, each a mapping of settings")
    document = {str(name).lower(): {str(k).lower(): v for k, v in value.items()} for name, value in document.items()}
    if strange := sorted(filter(_is_strange, document)):
        raise ConfigError(f"{path}: no section is called {' or '.join(strange)}")
    return document


def explain(problem: Mapping[str, Any]) -> str:
    """Returns one sentence for a problem that pydantic found: the variable and what is wrong with it."""
    location = [str(part) for part in problem["loc"]]
    unknown = problem["type"] == "extra_forbidden"
    message = "there is no such setting" if unknown else problem["msg"].removeprefix("Value error, ")
    return f"{variable(location[0], '__'.join(location[1:]))}: {message}" if len(location) > 1 else message


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
SECOND_UNITS: Final[Mapping[str, Decimal]] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}


def read_bytes(value: Any) -> Any:
    """Returns the bytes as a number, if `value` is text with a unit: KiB, MiB, GiB and TiB are powers of 1024, KB, MB, GB and TB
    of 1000.

    Anything else stays as it is. Raises ValueError for another unit, or for parts of a byte.
    """
    number, unit = _parted(value)
    if unit is None:
        return value
    if unit not in BYTE_UNITS:
        raise ValueError(f"{value} has no unit of bytes: write a number, or one with KiB, MiB, GiB, KB, MB or GB")
    found = number * BYTE_UNITS[unit]
    if found != int(found):
        raise ValueError(f"{value} is not a whole number of bytes")
    return int(found)


def read_seconds(value: Any) -> Any:
    """Returns the seconds as a number, if `value` is text with a unit: ms, s, m or min, h, d. Anything else stays as it is.

    Raises ValueError for another unit.
    """
    number, unit = _parted(value)
    if unit is None:
        return value
    if unit not in SECOND_UNITS:
        raise ValueError(f"{value} has no unit of time: write seconds, or a number with ms, s, m, h or d")
    return float(number * SECOND_UNITS[unit])


def _parted(value: Any) -> tuple[Decimal, str | None]:
    found = QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    return (Decimal(found[1]), found[2].lower()) if found is not None else (Decimal(0), None)


Bytes = Annotated[int, BeforeValidator(read_bytes)]
Seconds = Annotated[float, BeforeValidator(read_seconds)]
WholeSeconds = Annotated[int, BeforeValidator(read_seconds)]
