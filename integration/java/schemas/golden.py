"""Records what AWS's serializers for Java and ours write, and what Java reads of ours.

python -m integration.java.schemas.golden > tests/serialization/golden.json
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from integration.java.schemas.tool import STREAM, VERSION, Case, SchemaTool
from kinesis_sdk.serialization import GlueSchemaRegistry
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests.serialization.cases import pairs


def record(folder: Path) -> dict[str, Any]:
    """Return the content of ``golden.json``."""
    aws = FakeAws()
    glue = aws.client("glue")
    bytes_of: list[dict[str, Any]] = []
    with FakeAwsServer(aws) as server, SchemaTool(server.endpoint_url, folder / "java.log") as tool:
        for name, pair in pairs().items():
            case = Case(pair.data_format, pair.schema_name, pair.schema, pair.java)
            for compression in ("none", "zlib"):
                registry = GlueSchemaRegistry(client=glue, auto_registration=True, compression=compression)
                java = tool.serialize(case, compression.upper())
                ours = registry.serializer(pair.codec, schema_name=pair.schema_name).serialize(
                    STREAM, pair.value
                )
                payload = pair.codec.serialize(STREAM, pair.value)
                bytes_of.append(
                    {
                        "name": name,
                        "compression": compression,
                        "java": java.hex(),
                        "kpl": tool.encode(case, payload, compression.upper()).hex(),
                        "ours": ours.hex(),
                        "java_reads": tool.deserialize(ours),
                    }
                )
    schemas = []
    for schema in glue.list_schemas()["Schemas"]:
        identity = {"SchemaArn": schema["SchemaArn"]}
        for version in glue.list_schema_versions(SchemaId=identity)["Schemas"]:
            found = glue.get_schema_version(SchemaVersionId=version["SchemaVersionId"])
            keys = ("SchemaVersionId", "SchemaArn", "DataFormat", "SchemaDefinition", "Status")
            schemas.append({key: found[key] for key in keys})
    return {
        "java": f"software.amazon.glue:schema-registry-serde:{VERSION}",
        "schemas": schemas,
        "bytes": bytes_of,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(record(Path(folder)), indent=1, ensure_ascii=False))
