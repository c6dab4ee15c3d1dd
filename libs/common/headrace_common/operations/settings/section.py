"""The base class of every group of settings, and the units of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Section(BaseModel):
    """A group of settings: immutable, without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    removed: ClassVar[Mapping[str, str]] = {}  # by the name of a removed setting: what is so instead
