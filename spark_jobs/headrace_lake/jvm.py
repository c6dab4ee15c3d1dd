"""Classes of the JVM by their full names."""

from __future__ import annotations

from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """The class `name` of the driver's JVM, a nested one with a ``$``: to be called for an instance, or asked for what is static.

    Nothing is asked of the JVM yet. ``spark._jvm.org.apache.…`` names the same class, but asks for every part of the name,
    and a part that is a package is looked for as a class in each of hundreds of jars, every time.
    """
    return JavaClass(name, cast("Any", spark)._jvm._gateway_client)
