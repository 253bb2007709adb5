"""Makes kubernetes.json: the schemas of the objects in examples/kubernetes, cut out of the full set.

``python -m integration.examples.kubernetes_schema kubernetes_validate-*.whl`` reads the wheel of the package kubernetes-validate. It
holds the strict schemas of every version, generated from Kubernetes' API definitions (Apache License 2.0), in 17,000 files.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

VERSION = "v1.34.0"
KINDS = {
    "ConfigMap": "configmap-v1",
    "Deployment": "deployment-apps-v1",
    "PodDisruptionBudget": "poddisruptionbudget-policy-v1",
    "Service": "service-v1",
    "ServiceAccount": "serviceaccount-v1",
}
TARGET = Path(__file__).with_name("kubernetes.json")
_REFERENCE = "/api/_definitions.json#/$defs/"


def cut(value: Any) -> Any:
    """Return a schema without descriptions, whose references point into the same file."""
    if isinstance(value, list):
        return [cut(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {
        name: cut(one)
        for name, one in value.items()
        if not (name == "description" and isinstance(one, str)) and not name.startswith("x-kubernetes")
    }
    if isinstance(kept.get("$ref"), str):
        kept["$ref"] = kept["$ref"].replace(_REFERENCE, "#/$defs/")
    return kept


def main(wheel: str) -> None:
    """Write the schemas of `KINDS` and the definitions that they refer to."""
    with zipfile.ZipFile(wheel) as package:
        folder = f"kubernetes_validate/kubernetes-json-schema/{VERSION}-local-strict"
        all_definitions = json.loads(package.read(f"{folder}/_definitions.json"))["$defs"]
        kinds = {}
        for kind, name in KINDS.items():
            schema = cut(json.loads(package.read(f"{folder}/{name}.json")))
            kinds[kind] = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
    definitions: dict[str, Any] = {}
    wanted = [json.dumps(kinds)]
    while wanted:
        for name in re.findall(r'"#/\$defs/([^"]+)"', wanted.pop()):
            if name not in definitions and name not in kinds:
                definitions[name] = cut(all_definitions[name])
                wanted.append(json.dumps(definitions[name]))
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Kubernetes {VERSION}, strict; made by kubernetes_schema.py",
        "$defs": dict(sorted((definitions | kinds).items())),
    }
    TARGET.write_text(json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
