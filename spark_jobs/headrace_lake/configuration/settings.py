"""Settings of the landing job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from headrace_common.operations.settings import MIB, KafkaSettings, OpsSettings, Section, Settings
from headrace_common.operations.variables import Seconds, WholeSeconds, read_bytes
from pydantic import Field, SecretStr, field_validator, model_validator

from headrace_lake.configuration.places import local_folder, unreadable, within

# the names of AWS's, Azure's and Google's secrets among Hadoop's options
_SECRET: Final = re.compile(
    r"secret|password|session\.token|access\.key|account\.key|private\.key|sas\.(fixed\.)?token", re.IGNORECASE
)


def location(path: str) -> str:
    """Returns `path` in the form that Spark gets: a URL unchanged, a local folder absolute; no slash at the end."""
    if len(urlsplit(path).scheme) > 1:  # one letter: a drive
        return path.rstrip("/")
    return str(Path(path).absolute())


class LakeSettings(Section):
    """Where the tables are, and how the job fills them."""

    path: str = Field(".headrace/lake", description="Folder or URL that holds the tables.")
    checkpoint: str = Field(
        ".headrace/checkpoint",
        description="Folder or URL for Spark's checkpoint: scratch, made anew at each start; never inside PATH.",
    )
    trigger: Seconds = Field(
        10, ge=0, description="Seconds between two looks for new records; 0: the next look comes at once."
    )
    delay: Seconds = Field(
        45,
        ge=0,
        allow_inf_nan=False,
        description="Seconds since the last batch after which even few records land. With 200,000 of them a batch begins at the"
        " next TRIGGER; 0: always.",
    )
    least_records: ClassVar[int] = 200_000
    """New records for which a batch does not wait. A batch of 0.9 CPU-s then adds 5 CPU-s to a million."""

    batch_records: int = Field(500_000, ge=1, description="Maximum records in a batch, over all partitions.")
    jars: Path | None = Field(
        None,
        description="Folder of the jars for Spark's class path; default: the class path has them already (spark-submit).",
    )
    master: str = Field(
        "", description="Spark master; default: the one of spark-submit, or `local[*]` without spark-submit."
    )
    driver_memory: str = Field(
        "1g",
        pattern=r"^[1-9]\d*[kmg]$",
        examples=["1g", "512m"],
        description="Heap of the JVM that the job starts; under spark-submit its own option counts.",
    )
    group: str = Field(
        "headrace-lake",
        description="Consumer group to which the job commits the landed offsets, for lag tools; empty: none.",
    )
    horizon: Seconds = Field(
        3600,
        ge=0,
        allow_inf_nan=False,
        description="Seconds. Of events with the same id whose Kafka timestamps are at most this far apart, one lands;"
        " 0: all land.",
    )
    dedup: Literal["auto", "arrays"] = Field(
        "auto",
        description="Where ids are remembered: `arrays` in the driver's Python; `auto`, with a `local` master, in the JVM.",
    )
    dedup_memory: int | None = Field(
        None, ge=1 << 20, description="Maximum bytes of remembered ids; default: a quarter of the driver's heap."
    )
    maintenance_share: float = Field(
        0.2,
        ge=0,
        le=0.9,
        description="Share of the time that compaction, retention and vacuum may take, beside landing; 0: they never run.",
    )
    file_bytes: ClassVar[int] = 128 * MIB
    """Size of the files that compaction makes, about: queries read few, and a merge holds one."""

    retention_days: int = Field(
        0,
        ge=0,
        description="How many days of `events` and `quarantine` to keep before today, by the day of landing; 0: all.",
    )
    vacuum_age: WholeSeconds = Field(
        7 * 86_400,
        ge=3600,
        le=7 * 86_400,  # Delta's log names a removed file for a week
        description="Seconds that files stay after they left the table: the longest time that a query may take.",
    )
    vacuum_every: ClassVar[int] = 86_400
    """Seconds between two vacuums of a table: each lists the whole folder, which costs money in an object store."""

    @field_validator("dedup_memory", mode="before")  # as `Bytes`, whose schema would lose the minimum beside None
    @classmethod
    def _memory(cls, value: Any) -> Any:
        return read_bytes(value)

    spark: dict[str, str] = Field(
        {},
        description="More options for Spark: a JSON object of texts, with the names of Spark's documentation. No"
        " secrets: the process list would show them.",
    )
    spark_secrets: dict[str, SecretStr] = Field(
        {},
        description="Secret options `spark.hadoop.…`: a JSON object, better given by `…_FILE`. For S3, AWS's own variables"
        " suffice.",
    )

    @model_validator(mode="after")
    def _spark_options(self) -> Self:
        strange = [name for name in self.spark if not name.startswith("spark.")]
        strange += [name for name in self.spark_secrets if not name.startswith("spark.hadoop.")]
        if strange:
            raise ValueError(
                f"Spark has no option {strange[0]}: all names begin with spark., in SPARK_SECRETS spark.hadoop."
            )
        secret = [name for name in self.spark if _SECRET.search(name)]
        if secret:
            raise ValueError(f"{secret[0]} is a secret: give it in SPARK_SECRETS, or in AWS's own variables")
        return self

    @model_validator(mode="after")
    def _maintained(self) -> Self:
        if self.retention_days and not self.maintenance_share:
            raise ValueError(
                "LAKE__RETENTION_DAYS needs a LAKE__MAINTENANCE_SHARE above 0: otherwise nothing is ever dropped"
            )
        if self.retention_days and self.retention_days * 86_400 < self.horizon:
            raise ValueError(
                "LAKE__HORIZON is longer than LAKE__RETENTION_DAYS: the job reads the ids from the table when it starts"
            )
        return self

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if not self.path or not self.checkpoint:
            raise ValueError("LAKE__PATH and LAKE__CHECKPOINT must not be empty")
        lake, checkpoint = location(self.path), location(self.checkpoint)
        if within(checkpoint, lake) or within(lake, checkpoint):
            raise ValueError(f"LAKE__CHECKPOINT ({checkpoint}) and LAKE__PATH ({lake}) must not contain each other")
        folder = local_folder(lake)
        if folder is not None and not (folder / "events").exists() and (part := unreadable(lake)) is not None:
            raise ValueError(
                f"no reader could open tables in LAKE__PATH ({lake}): name a folder whose path has no {part}"
            )
        if self.jars is not None and not list(self.jars.glob("*.jar")):
            raise ValueError(f"LAKE__JARS ({self.jars}) has no jars in it")
        return self


class LakeProcessSettings(Settings):
    """Settings of ``python -m headrace_lake``."""

    kafka: KafkaSettings = KafkaSettings()
    lake: LakeSettings = LakeSettings()
    ops: OpsSettings = OpsSettings()
