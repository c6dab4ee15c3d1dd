"""Writes values.yaml and values.schema.json of the Helm chart from its declared values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

import yaml
from chart_parts import FORM, PARTS, SECRETS, SETTINGS, Part
from chart_pods import FORMS, Pod
from chart_values import Receivers, Values
from headrace_common.operations.variables import BYTE_UNITS, QUANTITY, SECOND_UNITS, read_bytes, read_seconds
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo


def _holds_secret(cls: type[BaseModel], name: str) -> bool:
    return "SecretStr" in repr(cls.model_fields[name].annotation) or any(
        _holds_secret(model, field)
        for model in _models(cls.model_fields[name].annotation)
        for field in model.model_fields
    )


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models(inner)


def sections(part: Part) -> dict[str, type[BaseModel]]:
    """The sections of a part, in order."""
    found = {}
    for name, info in part.settings.model_fields.items():
        model = info.annotation
        if name in part.sections and isinstance(model, type) and issubclass(model, BaseModel):
            found[name] = model
    return found


def names(part: Part, *, secret: bool) -> dict[str, list[str]]:
    """By section, the settings that the chart takes in `settings`, or (`secret`) in `secrets`."""
    return {
        section: [
            name
            for name in model.model_fields
            if _holds_secret(model, name) is secret and f"{section}.{name}" not in part.without
        ]
        for section, model in sections(part).items()
    }


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


UNITS: Final[Mapping[Any, Mapping[str, Any]]] = {read_bytes: BYTE_UNITS, read_seconds: SECOND_UNITS}
"""The units of a setting, by the function that reads it; their letters may be of either case."""


def _units_of(annotation: Any, metadata: Iterable[Any]) -> Mapping[str, Any]:
    """The units that a setting takes; empty if it is no size and no duration."""
    for found in metadata:
        if isinstance(found, BeforeValidator) and found.func in UNITS:
            return UNITS[found.func]
    for inner in getattr(annotation, "__args__", ()):
        if units := _units_of(inner, getattr(inner, "__metadata__", ())):
            return units
    return {}


def _with_units(schema: dict[str, Any], units: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a number that may also be a text with a unit."""
    words = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in unit) for unit in units)
    text = {"type": "string", "pattern": QUANTITY.pattern.replace("([A-Za-z]+)", f"({words})").join("^$")}
    number = {name: value for name, value in schema.items() if name not in {"description", "default", "title", "anyOf"}}
    return {"anyOf": [*schema.get("anyOf", [number]), text], "description": schema["description"]}


def _setting_schema(schema: dict[str, Any], model: type[BaseModel], name: str) -> dict[str, Any]:
    info = model.model_fields[name]
    units = _units_of(info.annotation, info.metadata)
    return _with_units(schema, units) if units else schema


def _settings_schema(part: Part, definitions: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for section, chosen in names(part, secret=False).items():
        whole = sections(part)[section].model_json_schema(ref_template="#/definitions/{model}")
        definitions.update(whole.get("$defs", {}))
        model = sections(part)[section]
        made[section] = _closed({name: _setting_schema(whole["properties"][name], model, name) for name in chosen})
    return _closed({section: found for section, found in made.items() if found["properties"]})


def _secrets_schema(part: Part) -> dict[str, Any]:
    key = {
        **_closed({"secret": {"type": "string", "minLength": 1}, "key": {"type": "string", "minLength": 1}}),
        "required": ["secret", "key"],
    }
    chosen = {section: found for section, found in names(part, secret=True).items() if found and section != "kafka"}
    return _closed({section: _closed(dict.fromkeys(found, key)) for section, found in chosen.items()})


def _walk(node: Any, definitions: dict[str, Any]) -> Any:
    """Puts the settings in, and leaves out what Helm has no use for."""
    if isinstance(node, list):
        return [_walk(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    description = {"description": node["description"]} if "description" in node else {}
    if SETTINGS in node:
        made = _settings_schema(PARTS[node[SETTINGS]], definitions)
        if node[SETTINGS] == "kafka":  # one section, so it needs no name
            made = made["properties"]["kafka"]
        return _walk(made, definitions) | description
    if SECRETS in node:
        return _secrets_schema(PARTS[node[SECRETS]]) | description
    if FORM in node:
        return {"$ref": f"#/definitions/{node[FORM]}"} | description
    kept = {
        name: value for name, value in node.items() if name not in {"title", "default", "format", "writeOnly", "$defs"}
    }
    if isinstance(kept.get("properties"), dict):
        kept["properties"] = {name: _walk(value, definitions) for name, value in kept["properties"].items()}
    return {name: value if name == "properties" else _walk(value, definitions) for name, value in kept.items()}


def _needed(group: BaseModel) -> dict[str, Any]:
    """The names that a group must have: Helm takes a default away where a value is null, and templates read nothing as 0."""
    found: dict[str, Any] = {"required": [], "properties": {}}
    for name, info in _own_fields(group):
        value, alias = getattr(group, name), info.alias or name
        if isinstance(group, Receivers):  # each has the values of receiverDefaults
            found["properties"][alias] = {"required": ["enabled"]}
        elif isinstance(value, BaseModel):
            found["properties"][alias] = _needed(value)
        elif value in (None, "", []) or isinstance(value, dict) or type(None) in get_args(info.annotation):
            continue
        found["required"].append(alias)
    return {name: value for name, value in found.items() if value}


def schema() -> str:
    """values.schema.json."""
    whole = Values.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    definitions: dict[str, Any] = dict(whole["$defs"]) | FORMS
    done: dict[str, Any] = {}
    while set(definitions) - set(done):  # settings bring definitions of their own
        for name in sorted(set(definitions) - set(done)):
            done[name] = _walk(definitions[name], definitions)
    made = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Headrace chart",
        **_walk(whole, definitions),
        "definitions": dict(sorted(done.items())),
    }
    made["allOf"] = [_needed(Values())]
    made["properties"]["global"] = {"type": "object"}  # Helm gives it to every chart
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def units() -> str:
    """The units of settings for the chart's templates, by the same tables that the processes read: name to factor."""
    made = {"bytes": BYTE_UNITS, "seconds": {name: float(factor) for name, factor in SECOND_UNITS.items()}}
    return json.dumps(made, indent=1) + "\n"


def _plain(value: Any) -> Any:
    return value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value


def _own_fields(model: BaseModel) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of a group of values, without those that every pod has: `podDefaults` lists them."""
    for name, info in type(model).model_fields.items():
        if type(model) is Pod or name not in Pod.model_fields:
            yield name, info


def _lines(model: BaseModel, indent: int, *, only_set: bool) -> Iterator[str]:
    pad = " " * indent
    for name, info in _own_fields(model):
        if only_set and name not in model.model_fields_set:
            continue
        value, alias = getattr(model, name), info.alias or name
        if isinstance(value, BaseModel):
            if indent == 0:
                yield ""
            yield f"{pad}# {info.description}"
            yield f"{pad}{alias}:"
            yield from _lines(value, indent + 2, only_set=only_set or name == "receivers")
        else:
            yield f"{pad}# {info.description}"
            if value is None:
                yield f"{pad}# {alias}:"
            else:
                style = None if isinstance(value, dict | list) else False
                flow = yaml.safe_dump({alias: value}, sort_keys=False, default_flow_style=style, width=1000)
                yield from (pad + line for line in flow.rstrip("\n").split("\n"))


VALUES_HEAD: Final = """\
# Values of the Headrace chart, with their defaults. Written by docs/generate.py: change docs/chart_values.py.
# `settings` take what docs/settings.md lists: HEADRACE_LIMITS__CONNECTION_AGE is `limits: {connection_age: 5m}`.
# Each part may have any value of `podDefaults` beside its own.
"""


def _receivers_lines() -> Iterator[str]:
    yield "  # Values of one receiver alone: `enabled`, its own `settings`, and any of `receiverDefaults`."
    for name in Receivers.model_fields:
        yield f"  {name}:"
        yield "    enabled: true"
        yield "    settings: {}"


def values() -> str:
    """values.yaml."""
    lines: list[str] = []
    for line in _lines(Values(), 0, only_set=False):
        lines.append(line)
        if line == "receivers:":
            lines += list(_receivers_lines())
    return VALUES_HEAD + "\n".join(lines) + "\n"
