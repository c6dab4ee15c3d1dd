"""Small files on whatever file system Spark can reach (local, S3A, ABFS, GCS), through Hadoop's API in the JVM."""

from __future__ import annotations

from typing import Any, Final, cast

from pyspark.sql import SparkSession

from headrace_lake.halt import HaltError
from headrace_lake.jvm import java_class

_APPEARS_WHEN_CLOSED: Final = frozenset({"s3a", "gs"})
"""Object stores: a file is there from the moment that it is closed, and a rename is a copy."""


class Storage:
    """Reads and writes whole small text files. Every call blocks on storage; a failing one raises `Py4JJavaError`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        self._configuration = cast("Any", spark)._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at `path`."""
        there, files = self._at(path)
        return bool(files.exists(there))

    def names(self, path: str) -> list[str]:
        """The names in the folder `path`, sorted; empty when it is not there."""
        there, files = self._at(path)
        if not files.exists(there):
            return []
        statuses = files.listStatus(there)
        # S3A's array is of a class of its own, which py4j takes for another type
        plain = self._gateway.new_array(self._class("org.apache.hadoop.fs.FileStatus"), len(statuses))
        self._class("java.lang.System").arraycopy(statuses, 0, plain, 0, len(statuses))
        paths = self._class("org.apache.hadoop.fs.FileUtil").stat2Paths(plain)
        arrays = self._class("org.apache.commons.lang3.ArrayUtils")
        listed = str(arrays.toString(paths))  # one call, not one for each
        folder = str(files.makeQualified(there).toString())
        return sorted(name.rstrip(",") for name in listed[1:-1].split(f"{folder}/") if name)

    def read(self, path: str) -> str | None:
        """The text of the file `path`; None when it is not there."""
        there, files = self._at(path)
        if not files.exists(there):
            return None
        stream = files.open(there)
        try:
            return str(self._class("org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Puts a new file at `path`, whole or not at all, and returns when it is there. Must not exist yet."""
        there, files = self._at(path)
        if self.scheme(path) in _APPEARS_WHEN_CLOSED:
            self._create(files, there, text, overwrite=False)
            return
        draft, _ = self._at(f"{path}.draft")
        self._create(files, draft, text, overwrite=True)
        if not files.rename(draft, there):
            raise HaltError(f"{path} cannot be written: it is there already, or its folder is not")

    def scheme(self, path: str) -> str:
        """Which kind of file system `path` is on (``file``, ``hdfs``, ``s3a``); without one in `path`, the default one's."""
        return str(self._at(path)[1].getUri().getScheme())

    def _create(self, files: Any, there: Any, text: str, *, overwrite: bool) -> None:
        stream = files.create(there, overwrite)
        stream.write(bytearray(text.encode()))
        stream.close()

    def delete(self, path: str) -> bool:
        """Deletes the file at `path`, or the folder with all that is in it; False when there was none."""
        there, files = self._at(path)
        return bool(files.delete(there, True))

    def _at(self, path: str) -> tuple[Any, Any]:
        there = self._class("org.apache.hadoop.fs.Path")(path)
        return there, there.getFileSystem(self._configuration)

    def _class(self, name: str) -> Any:
        return java_class(self.spark, name)
