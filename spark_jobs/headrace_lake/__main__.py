"""``python -m headrace_lake [--once]``: the landing job. Exits with 0, 78 (settings) or 1 (it had to stop: one line says why)."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from headrace_common import log as logs
from headrace_common.errors import EXIT_CONFIG, ConfigError, HeadraceError
from headrace_common.metrics import LakeMetrics
from headrace_common.settings import describe, load

from headrace_lake.causes import root_cause
from headrace_lake.engine import remarks, session
from headrace_lake.job import Job
from headrace_lake.operations import LakeHealth, OpsThread
from headrace_lake.settings import LakeProcessSettings, location


def main() -> int:
    """Runs the job; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace_lake",
        description="Carries both topics into the lake's tables, every record exactly once.",
        epilog="environment:\n" + "\n".join(f"  {line}" for line in describe(LakeProcessSettings)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="YAML file with settings; the environment wins")
    parser.add_argument("--once", action="store_true", help="land what is there now, then end (for cron)")
    arguments = parser.parse_args()
    try:
        settings = load(LakeProcessSettings, arguments.config)
    except ConfigError as error:
        print(f"headrace_lake: {error}", file=sys.stderr)
        return EXIT_CONFIG
    log = logs.configure(settings.log, "lake")
    metrics = LakeMetrics()
    health = LakeHealth(metrics)
    ops = OpsThread(settings.ops, health, metrics)
    try:
        ops.start()
        log.info("starting", ops_port=ops.port)
        spark = session(settings.lake, settings.log)
        try:
            places = {"LAKE__PATH": settings.lake.path, "LAKE__CHECKPOINT": settings.lake.checkpoint}
            for remark in remarks(spark, {name: location(path) for name, path in places.items()}):
                log.warning("remark", what=remark)
            job = Job(spark, settings, once=arguments.once, log=log, health=health)
            signal.signal(signal.SIGTERM, job.stop)
            signal.signal(signal.SIGINT, job.stop)
            job.run()
        finally:
            spark.stop()
    except ConfigError as error:
        log.error("stopped", reason=str(error))
        return EXIT_CONFIG
    except HeadraceError as error:
        log.error("stopped", reason=str(error))
        return 1
    except Exception as error:
        log.debug("failed", exc_info=error)
        log.error("stopped", reason=root_cause(error))
        return 1
    log.info("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
