"""What the kubeflow spark-operator says to a SparkApplication, by the models that it publishes of its own definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeflow_spark_api.models.spark_v1beta2_spark_application import SparkV1beta2SparkApplication

CLOSED: Mapping[tuple[str, ...], frozenset[str]] = {
    ("type",): frozenset({"Java", "Python", "Scala", "R"}),
    ("mode",): frozenset({"cluster", "client"}),
    ("restartPolicy", "type"): frozenset({"Never", "Always", "OnFailure"}),
}
"""The enumerations of its definition, which its models leave out."""


def faults(application: Mapping[str, Any]) -> list[str]:
    """Fields that the operator does not know, and values of closed lists that it does not take.

    Raises pydantic's `ValidationError` for a value of a wrong type, or a missing one.
    """
    model = SparkV1beta2SparkApplication.model_validate(application)
    understood = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return [*_unknown(application, understood, ""), *_not_taken(application["spec"])]


def _unknown(given: Any, understood: Any, path: str) -> Iterator[str]:
    """What did not survive: the models drop what they do not know."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name in understood:
                yield from _unknown(value, understood[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(given, list):
        for index, (mine, theirs) in enumerate(zip(given, understood, strict=True)):
            yield from _unknown(mine, theirs, f"{path}[{index}]")
    elif given != understood:
        yield path


def _not_taken(spec: Mapping[str, Any]) -> Iterator[str]:
    for path, allowed in CLOSED.items():
        value: Any = spec
        for name in path:
            value = value[name]
        if value not in allowed:
            yield f".spec.{'.'.join(path)}"
