"""A program for `test_s3`: asks the log store for S3 what it does, and prints the answers as JSON.

Arguments: folder of the jars, Spark's options as JSON. The bucket `deaf` is behind a server that drops the condition.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from headrace_common.operations.settings import LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.engine import remarks, running, session
from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.log_store import install
from py4j.protocol import Py4JJavaError

LAKE = "s3a://headrace/lake"
CHECKPOINT = "s3a://headrace/checkpoint"
DEAF = "s3a://deaf/lake"


def main() -> None:
    settings = LakeSettings(
        path=LAKE, checkpoint=CHECKPOINT, jars=Path(sys.argv[1]), master="local[1]",
        spark=json.loads(sys.argv[2]),
    )  # fmt: skip
    deaf = install(session(settings, LogSettings()), DEAF)
    with running(settings, LogSettings()) as spark:
        said = remarks(spark, LAKE)
        path = java_class(spark, "org.apache.hadoop.fs.Path")(f"{LAKE}/table/_delta_log/{0:020d}.json")
        configuration = cast("Any", spark)._jsc.hadoopConfiguration()
        scala = java_class(spark, "org.apache.spark.sql.delta.storage.LogStore")
        store = scala.apply(cast("Any", spark)._jsparkSession)
        options = java_class(spark, "org.apache.spark.api.python.PythonUtils")

        def write(line: str, *, overwrite: bool = False) -> str:
            lines = options.toSeq([line]).iterator()
            try:
                store.write(path, lines, overwrite, configuration)
            except Py4JJavaError as error:
                return str(error.java_exception.getClass().getSimpleName())
            return "written"

        written = [write("a"), write("b"), write("c", overwrite=True)]
        print(json.dumps({"deaf": deaf, "said": said, "written": written}))


if __name__ == "__main__":
    main()
