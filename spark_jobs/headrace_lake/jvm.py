"""Classes of the JVM by their full names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """The class `name` of the driver's JVM, a nested one with a ``$``: to be called for an instance, or asked for what is static.

    Nothing is asked of the JVM yet. ``spark._jvm.org.apache.…`` names the same class, but asks for every part of the name,
    and a part that is a package is looked for as a class in each of hundreds of jars, every time.
    """
    return JavaClass(name, cast("Any", spark)._jvm._gateway_client)


def java_array(spark: SparkSession, of: str, values: Sequence[Any]) -> Any:
    """A Java array of the class `of` with `values`; one call for each."""
    array = cast("Any", spark.sparkContext)._gateway.new_array(java_class(spark, of), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def call_static(spark: SparkSession, owner: str, method: str, kinds: Sequence[str], arguments: Sequence[Any]) -> Any:
    """What a static `method` of the class `owner` returns: of its overloads the one whose parameters have these very `kinds`.

    Left to itself py4j takes, of the overloads that fit, whichever the JVM lists first, and that differs between JVMs.
    """
    java = java_class(spark, "java.lang.Class")
    found = java.forName(owner).getMethod(method, java_array(spark, "java.lang.Class", [*map(java.forName, kinds)]))
    return found.invoke(None, java_array(spark, "java.lang.Object", arguments))
