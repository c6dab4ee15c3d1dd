"""What a route may be, and the columns that follow from a JSON schema or from bodies."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import load
from headrace_lake.configuration.routes import RouteColumn, RouteSettings, of_schema, sampled
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.rows.routed import OWN, RouteTable, matches
from headrace_reader.tables import RETAINED, RETAINED_SAID, ROUTES, STRAYED, TABLES, TRANSACTIONS
from pydantic import ValidationError


def kinds(columns: tuple[RouteColumn, ...]) -> dict[str, str]:
    return {column.name: column.kind for column in columns}


def test_columns_of_a_json_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "status": {"type": ["integer", "null"]},
            "share": {"type": "number"},
            "ok": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "user": {"$ref": "#/$defs/user"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "any": True,
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "mixed": {"type": ["integer", "string"]},
            "stream": {"type": "string"},
            "k8s.pod-name": {"type": "string"},
            "2nd": {"type": "integer"},
        },
        "$defs": {"user": {"type": "object", "properties": {"id": {"type": "integer"}, "Name": {"type": "string"}}}},
    }
    assert kinds(of_schema(schema, OWN)) == {
        "status": "bigint", "share": "double", "ok": "boolean", "at": "timestamp", "body_day": "date", "user_id": "bigint",
        "user_name": "string", "tags": "string", "any": "string", "either": "bigint", "mixed": "string",
        "body_stream": "string", "k8s_pod_name": "string", "_2nd": "bigint",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, "has no `properties`"),
        ({"type": "string"}, "has no `properties`"),
        ({"properties": {"it's": {}}}, "cannot become a column"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "only its own parts"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "refers to itself"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}}, r"refers to #/\$defs/a, which it does not have"),
        ({"properties": {"": {}}}, "cannot become a column"),
        ({"properties": {"half \ud800": {}}}, "cannot become a column"),
        ({"properties": {"k" * 256: {}}}, "empty or longer than 255"),
        ({"properties": {f"p{n}": {} for n in range(501)}}, "501 properties: at most 500"),
    ],
)
def test_a_schema_that_gives_no_columns_is_refused(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RouteSettings(streams="a", json_schema=schema)


def test_what_a_schema_should_not_say_is_text() -> None:
    schema = {
        "properties": {"a": {"anyOf": None}, "b": {"type": 5}, "c": {"oneOf": {}, "type": {}}, "d": {"type": [None]}}
    }
    assert set(kinds(of_schema(schema, OWN)).values()) == {"string"}


def test_a_reference_is_a_json_pointer() -> None:
    properties = {"a": {"$ref": "#/$defs/x~1y%20~0"}}
    assert kinds(of_schema({"properties": properties, "$defs": {"x/y ~": {"type": "integer"}}}, OWN)) == {"a": "bigint"}


def test_500_columns_are_not_too_many() -> None:
    assert len(of_schema({"properties": {f"p{n}": {} for n in range(500)}}, OWN)) == 500


def test_columns_of_a_sample() -> None:
    bodies = [
        {
            "n": 1,
            "f": 1,
            "b": True,
            "t": "2026-05-06T00:00:00Z",
            "o": {"x": 1, "y": {"z": "s"}},
            "l": [1],
            "never": None,
        },
        {"n": 2, "f": 2.5, "b": "no", "o": {"x": 2.0}, "late": 1, "N": "another spelling of n", "big": 1 << 63},
        {"either": {"a": 1}, "it's": 1, "": 2, "empty": {}},
        {"either": 7},
    ]
    texts = [*(json.dumps(body) for body in bodies), "{broken", "[1]", '"text"', "[" * 100_000]
    assert kinds(sampled(texts, OWN)) == {
        "n": "bigint", "f": "double", "b": "string", "t": "string", "o_x": "double", "o_y_z": "string", "l": "string",
        "late": "bigint", "big": "string", "either": "string", "empty": "string",
    }  # fmt: skip
    assert sampled(["[1]", "nothing"], OWN) == ()


@pytest.mark.parametrize(
    ("bodies", "paths"),
    [
        (['{"Req": {"a": 1}}', '{"req": {"b": 2}}'], [("Req", "a")]),
        (['{"A": 1}', '{"a": {"b": 2}}'], [("A",)]),
        (['{"a": {"b": 2}}', '{"A": 1}'], [("a", "b")]),
        (['{"\u00b5s": 1, "\u03bcs": 2}'], [("\u00b5s",)]),  # the micro sign, and the Greek letter
        (['{"\u0131": 1, "i": 2, "\u0130": 3}'], [("\u0131",)]),
        (['{"\u00df": 1, "ss": 2, "\u1e9e": 3}'], [("\u00df",), ("ss",)]),
        (['{"a": {"x": 1}, "b": {"X": 1, "y": 1}}'], [("a", "x"), ("b", "X"), ("b", "y")]),
        (['{"\\ud800": 1, "n\\udfff": 2, "\\ud83d\\ude00": 3}'], [("\U0001f600",)]),
        ([json.dumps({"k" * 256: 1, "k" * 255: 2})], [("k" * 255,)]),
    ],
)
def test_spark_can_tell_the_columns_of_a_sample_apart(bodies: list[str], paths: list[tuple[str, ...]]) -> None:
    assert [column.path for column in sampled(bodies, OWN)] == paths


def test_a_sample_remembers_so_many_keys() -> None:
    bodies = (json.dumps({f"k{number}_{key}": 1 for key in range(1_000)}) for number in range(50))
    tracemalloc.start()
    try:
        columns = sampled(bodies, OWN)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [column.path for column in columns] == [(f"k0_{key}",) for key in range(500)]
    assert most < 5 << 20, "50,000 keys take 10 MB"


def test_names_are_different() -> None:
    columns = sampled(['{"a": {"b": 1}, "a_b": 2, "a.b": 3, "offset": 4, "body_offset": 5}'], OWN)
    assert [column.name for column in columns] == ["a_b", "body_a_b", "a_b_2", "body_offset", "body_body_offset"]


def test_a_table_remembers_what_it_is() -> None:
    table = RouteTable("web", "app.web,a*", sampled(['{"a": {"b": 1}}'], OWN))
    assert RouteTable.of("web", table.properties, table.kinds) == table
    assert RouteTable.of("web", {}, ()) is None


def test_routes_from_the_environment_and_from_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = tmp_path / "web.json"
    schema.write_text('{"properties": {"status": {"type": "integer"}}}')
    page = tmp_path / "headrace.yaml"
    page.write_text(
        f"lake:\n  routes:\n    web: {{streams: 'app.web, nginx.*', json_schema: {schema}}}\n"
        "    inline:\n      streams: x\n      json_schema: {properties: {a: {type: string}}}\n"
    )
    routes = load(LakeProcessSettings, page).lake.routes
    assert routes["web"] == RouteSettings(streams="app.web,nginx.*", json_schema=schema)
    assert kinds(routes["web"].columns(OWN) or ()) == {"status": "bigint"}
    assert kinds(routes["inline"].columns(OWN) or ()) == {"a": "string"}
    monkeypatch.setenv("HEADRACE_LAKE__ROUTES", '{"web": {"streams": "app.*"}}')
    assert load(LakeProcessSettings).lake.routes == {"web": RouteSettings(streams="app.*")}
    monkeypatch.delenv("HEADRACE_LAKE__ROUTES")
    monkeypatch.setenv("HEADRACE_LAKE__ROUTES__WEB__STREAMS", "app.*")
    assert load(LakeProcessSettings).lake.routes == {"web": RouteSettings(streams="app.*")}
    monkeypatch.setenv("HEADRACE_LAKE__ROUTES__WEB__STREAMS", "a,,b")
    with pytest.raises(ConfigError, match="HEADRACE_LAKE__ROUTES__WEB__STREAMS: a pattern is empty"):
        load(LakeProcessSettings)


@pytest.mark.parametrize(
    "name", ["Web", "a-b", "a__b", "1a", "", "a" * 65, *TABLES, RETAINED, RETAINED_SAID, TRANSACTIONS, STRAYED, ROUTES]
)
def test_a_name_that_no_table_can_have(name: str) -> None:
    with pytest.raises(ValidationError, match=r"cannot be a table's name|is another table's name"):
        LakeSettings(routes={name: {"streams": "a"}})


def test_the_longest_name() -> None:
    assert LakeSettings(routes={"a" * 64: {"streams": "a"}}).routes


def test_patterns_as_sql() -> None:
    assert matches("app.web") == "(stream = 'app.web')"
    assert matches("a_*,?'") == "(stream like 'a\\\\_%' or stream like '_\\'')"
