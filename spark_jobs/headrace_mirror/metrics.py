"""The mirror's metrics. docs/metrics.md is generated from them."""

from __future__ import annotations

from headrace_common.operations.metrics import Catalogue


class MirrorMetrics(Catalogue):
    """The metrics of ``python -m headrace_mirror``."""

    def __init__(self) -> None:
        super().__init__()
        self.lag = self.gauge(
            "mirror_lag_versions",
            "Commits of the Delta table that its Iceberg table does not show yet, when last looked.",
            ("table",),
        )
        self.current = self.gauge(
            "mirror_current_timestamp_seconds",
            "Unix time when every Iceberg table last showed what its Delta table held. An hour ago or more: the mirror is stuck;"
            " after LAKE__VACUUM_AGE its readers may miss files.",
        )
        self.failures = self.counter(
            "mirror_failures", "Rounds that failed. The mirror tries again; the log says why.", ()
        )
