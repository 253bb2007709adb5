"""AWS's serializers for Java as a child process, with the fake's schema registry behind them."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from integration.java import install as kcl
from integration.java import maven
from integration.localstack.install import require

VERSION = "1.1.27"
STREAM = "orders"

_HERE = Path(__file__).parent
_SOURCE = _HERE / "SchemaTool.java"


def install() -> tuple[Path, Path]:
    """Return the folders with the jars and with the compiled `SchemaTool`; create them if they are missing.

    Raises:
        CannotInstallError: If the machine lacks Java or Maven, or the registry cannot be reached.
        RuntimeError: If the installation failed for another reason.
    """
    require("java", 17, "AWS's serializers")
    jars = maven.install(_HERE / f"serde-{VERSION}.jars")
    return jars, kcl.compiled(_SOURCE, jars, "schema-tool")


class Case(NamedTuple):
    """A value in the form that AWS's serializers take.

    `data_format` is ``AVRO``, ``JSON`` or ``PROTOBUF``. `value` is JSON; for Protobuf the name of the message type, a line
    break and Protobuf's text format.
    """

    data_format: str
    schema_name: str
    schema: str
    value: str


class SchemaTool:
    """The process. A context manager. `log` gets its standard error."""

    def __init__(self, endpoint_url: str, log: Path) -> None:
        jars, classes = install()
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-cp",
                f"{classes}:{jars}/*",
                "SchemaTool",
                endpoint_url,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "AWS_REGION": "us-east-1"},
        )

    def __enter__(self) -> SchemaTool:
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _ask(self, *words: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        self._process.stdin.flush()
        kind, _, text = self._process.stdout.readline().decode().strip().partition("\t")
        answer = base64.b64decode(text)
        if kind != "ok":
            raise RuntimeError(f"SchemaTool: {answer.decode() or 'it ended, see its log'}")
        return answer

    def serialize(self, case: Case, compression: str = "NONE") -> bytes:
        """Return a value as the serializer for Kafka writes it, which also registers the schema."""
        return self._ask("serialize", *_words(case), compression, _text(case.value))

    def encode(self, case: Case, payload: bytes, compression: str = "NONE") -> bytes:
        """Return a payload with a schema as the KPL writes it."""
        return self._ask("encode", *_words(case), compression, base64.b64encode(payload).decode())

    def deserialize(self, data: bytes) -> str:
        """Return a value as text."""
        return self._ask("deserialize", base64.b64encode(data).decode()).decode()

    def open(self, data: bytes) -> tuple[str, str, bytes]:
        """Return name and format of the schema, and the payload, as the KCL passes them to record processors."""
        name, data_format, payload = self._ask("open", base64.b64encode(data).decode()).split(b"\n", 2)
        return name.decode(), data_format.decode(), payload


def _words(case: Case) -> tuple[str, str, str, str]:
    return case.data_format, STREAM, case.schema_name, _text(case.schema)


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
