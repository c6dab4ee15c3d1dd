"""Small files on any file system that Spark can reach (local, S3A, ABFS, GCS), through Hadoop's API in the JVM."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from headrace_lake.spark.jvm import java_class


class Storage:
    """Reads whole small text files, and moves and deletes files. Every call blocks on storage and may raise `Py4JJavaError`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        self._configuration = cast("Any", spark)._jsc.hadoopConfiguration()
        self._systems: dict[tuple[str, str], tuple[Any, str]] = {}

    def exists(self, path: str) -> bool:
        """Returns whether `path` is a file or folder."""
        if self._plainly_missing(path):
            return False
        there, files = self._at(path)
        return bool(files.exists(there))

    def names(self, path: str) -> list[str]:
        """Returns the names in the folder `path`, sorted; empty if the folder does not exist."""
        there, files = self._at(path)
        if not files.exists(there):
            return []
        statuses = files.listStatus(there)
        # S3A returns an array of its own class, which py4j does not accept for the parameter
        plain = self._gateway.new_array(self._class("org.apache.hadoop.fs.FileStatus"), len(statuses))
        self._class("java.lang.System").arraycopy(statuses, 0, plain, 0, len(statuses))
        paths = self._class("org.apache.hadoop.fs.FileUtil").stat2Paths(plain)
        arrays = self._class("org.apache.commons.lang3.ArrayUtils")
        listed = str(arrays.toString(paths))  # one call to the JVM, not one for each name
        folder = str(files.makeQualified(there).toString())
        return sorted(name.rstrip(",") for name in listed[1:-1].split(f"{folder}/") if name)

    def read(self, path: str) -> str | None:
        """Returns the text of the file `path`; None if it does not exist. One on the local disk takes no call to the JVM."""
        if self._plainly_missing(path):
            return None
        if self.scheme(path) == "file":
            with suppress(OSError):  # Hadoop's own error tells more
                return Path(local_path(path)).read_bytes().decode(errors="replace")
        there, files = self._at(path)
        if not files.exists(there):
            return None
        stream = files.open(there)
        try:
            return str(self._class("org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
        finally:
            stream.close()

    def scheme(self, path: str) -> str:
        """Returns the scheme of `path`'s file system (``file``, ``hdfs``, ``s3a``); a path without one is on the default file
        system.
        """
        return self._system(path)[1]

    def delete(self, path: str) -> bool:
        """Deletes the file `path`, or the folder with all its content; False if it was missing."""
        there, files = self._at(path)
        return bool(files.delete(there, True))

    def local(self, path: str, folder: Path) -> Path:
        """Returns where the file `path` can be read on the local disk: where it is, or in a copy that this puts into `folder`."""
        if self.scheme(path) == "file":
            return Path(local_path(path))
        copy = folder / uuid.uuid4().hex
        there, files = self._at(path)
        files.copyToLocalFile(False, there, self._class("org.apache.hadoop.fs.Path")(f"file://{copy}"), True)
        return copy

    def upload(self, local: str, path: str) -> None:
        """Moves the local file `local` to the new file `path`.

        By a stream, as Spark writes: S3A's own upload of a file waits for an answer to `Expect` that some stores do not give.
        """
        (here, local_files), (there, files) = self._at(f"file://{local}"), self._at(path)
        copy = self._class("org.apache.hadoop.fs.FileUtil").copy
        copy(local_files, here, files, there, True, False, self._configuration)

    def _plainly_missing(self, path: str) -> bool:
        """Returns whether `path` is on the local disk and nothing is there. Most looks end here, without a call to the JVM."""
        local = local_path(path)
        if self.scheme(path) != "file" or not local.startswith("/"):
            return False
        try:
            os.stat(local)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # Hadoop's own error tells more
        return False

    def _at(self, path: str) -> tuple[Any, Any]:
        return self._class("org.apache.hadoop.fs.Path")(path), self._system(path)[0]

    def _system(self, path: str) -> tuple[Any, str]:
        """Returns the file system of `path`, and its scheme."""
        key = urlsplit(path)[:2]  # scheme and host
        if key not in self._systems:
            files = self._class("org.apache.hadoop.fs.Path")(path).getFileSystem(self._configuration)
            self._systems[key] = files, str(files.getUri().getScheme())
        return self._systems[key]

    def _class(self, name: str) -> Any:
        return java_class(self.spark, name)


def local_path(path: str) -> str:
    """Returns the path of a file on the local file system, without the scheme."""
    return re.sub(r"^file:(//)?", "", path)
