"""A process's settings: which sections it has, and how they are loaded, and set for another process."""

from __future__ import annotations

import os
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings.kafka import KafkaSettings, TopicSettings
from headrace_common.operations.settings.serving import (
    LimitSettings,
    ListenSettings,
    LogSettings,
    OpsSettings,
    TlsSettings,
)
from headrace_common.operations.variables import PREFIX, Environment, explain, variable


class Settings(BaseSettings):
    """Base class of a process's settings: its fields are the sections."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore", frozen=True, case_sensitive=False
    )

    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the environment, with secrets from files, and after it the arguments."""
        return (Environment(settings_cls), init_settings)


class ServiceSettings(Settings):
    """The settings of every receiver; each receiver adds one section of its own."""

    kafka: KafkaSettings = KafkaSettings()
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    ops: OpsSettings = OpsSettings()


class TopicsProcessSettings(Settings):
    """The settings of ``python -m headrace_common.topics``."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()


S = TypeVar("S", bound=Settings)


def load(cls: type[S]) -> S:
    """Loads settings of type `cls` from the environment.

    Raises `ConfigError` with one line per problem: unknown names, values out of range, contradictions.
    """
    try:
        return cls()
    except ValidationError as error:
        raise ConfigError("\n".join(map(explain, error.errors()))) from error


def environment(section: str, **values: object) -> dict[str, str]:
    """Returns the environment variables that set `values` in `section`, to start another Headrace process with."""
    return {variable(section, name): str(value) for name, value in values.items()}


def own_environment() -> dict[str, str]:
    """Returns the Headrace variables in this process's environment."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
