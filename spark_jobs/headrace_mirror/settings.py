"""Settings of the mirror."""

from __future__ import annotations

from typing import ClassVar

from headrace_common.operations.settings import OpsSettings, Section, Settings
from pydantic import Field, SecretStr


class MirrorSettings(Section):
    """What is mirrored, and where."""

    lake: str = Field(".headrace/lake", description="Folder or URL that holds the Delta tables: the job's LAKE__PATH.")
    catalog: dict[str, SecretStr] = Field(
        {},
        description="Catalog of the Iceberg tables: pyiceberg's properties as a JSON object, such as"
        ' `{"uri": "sqlite:////data/iceberg.db", "warehouse": "/data/iceberg"}`; with secrets better given by `…_FILE`.'
        " `namespace` among them names that of the tables (`headrace`).",
    )
    every: ClassVar[float] = 30
    """Seconds between two looks at the Delta tables."""


class MirrorProcessSettings(Settings):
    """Settings of ``python -m headrace_mirror``."""

    mirror: MirrorSettings = MirrorSettings()
    ops: OpsSettings = OpsSettings()
