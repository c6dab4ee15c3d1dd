"""The base class of every group of settings, and the units of sizes."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Section(BaseModel):
    """A group of settings: immutable, without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
