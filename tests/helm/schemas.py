"""Write JSON schemas of Kubernetes' own objects for ``kubeconform``, from the API description in Kubernetes' source.

    python tests/helm/schemas.py …/api/openapi-spec/swagger.json FOLDER

Makes ``FOLDER/v1.34.0/deployment-apps-v1.json`` and so on; `HEADRACE_KUBERNETES_SCHEMAS` names the folder to the tests. Unknown
fields are refused, as the server does with strict validation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

_SEVERAL_TYPES: Final = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ["string", "integer"],
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ["string", "number"],
}
"""The description calls them strings; the server takes the others, too."""

_DEFINITIONS: Final = "definitions.json"


def strict(schema: Any) -> Any:
    """Return the schema with unknown fields refused and references that point into the file of definitions."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if "$ref" in made:
        made["$ref"] = made["$ref"].replace("#/", f"{_DEFINITIONS}#/")
    if "properties" in schema:
        made["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        made.setdefault("additionalProperties", False)
    return made


def write(swagger: dict[str, Any], folder: Path) -> int:
    """Write the schemas of all kinds to `folder`; return how many."""
    definitions = {name: strict(schema) for name, schema in swagger["definitions"].items()}
    for name, types in _SEVERAL_TYPES.items():
        definitions[name] = {"type": types}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DEFINITIONS).write_text(json.dumps({"definitions": definitions}))
    written = 0
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            suffix = "-".join(part for part in (kind["group"].partition(".")[0], kind["version"]) if part)
            file = folder / f"{kind['kind']}-{suffix}.json".lower()
            file.write_text(json.dumps({"$ref": f"{_DEFINITIONS}#/definitions/{name}"}))
            written += 1
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("swagger", type=Path)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    swagger = json.loads(asked.swagger.read_text())
    version = asked.swagger.parent.parent.parent.name.partition("@")[2] or swagger["info"]["version"]
    print(f"{write(swagger, asked.folder / version)} kinds of {version}")


if __name__ == "__main__":
    main()
