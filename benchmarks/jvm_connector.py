"""The Kinesis connector for the JVM by AWS Labs, built from its source: no registry has its jar.

``python benchmarks/jvm_connector.py [--source CHECKOUT]`` builds it ahead of time, in some minutes, and prints the jar.

The source is a checkout or a git directory (``--source`` or ``KINESIS_CONNECTOR_SOURCE``), otherwise a clone from GitHub.
Reading is built as it is. The sink has no option for the KPL's endpoint, so that it can only write to AWS. One statement
is added where it configures the KPL: it takes the endpoint, the certificate authority and the rate limit from system
properties, and turns the upload of metrics off. What happens to a row stays the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from integration.localstack.install import CACHE, CannotInstallError, require, run  # noqa: E402

COMMIT = "0f4c005fb6f14132073e8e9fcbf73a6bd8e0bad3"
"""Version 2.1.0-SNAPSHOT, for Spark 4.1."""

REPOSITORY = "https://github.com/awslabs/spark-sql-kinesis-connector.git"
SOURCE_VARIABLE = "KINESIS_CONNECTOR_SOURCE"
SPARK = "4.1.4"
CBOR = "cbor2>=6"
"""The connector speaks CBOR, so that the fake AWS needs this package."""

# The pom names 2.44.5; 2.42.28 is the newest version of the AWS SDK with which the build was tried.
_MAVEN = ("-Daws.sdkv2.version=2.42.28",)

_SINK = "src/main/scala/org/apache/spark/sql/connector/kinesis/CachedKinesisProducer.scala"
_ANCHOR = "    // check for proxy settings\n"
_ADDED = """\
    sys.props.get("kinesis.producer.port").foreach { port =>
      kinesisProducerConfiguration
        .setKinesisEndpoint("127.0.0.1")
        .setKinesisPort(port.toLong)
        .setCaCertFile(sys.props("kinesis.producer.caCertFile"))
        .setRateLimit(sys.props("kinesis.producer.rateLimit").toLong)
        .setMetricsLevel("none")
    }

"""


def reader_options(stream: str, endpoint: str, *, wait: int = 5) -> dict[str, str]:
    """Return options with which the connector reads a stream from its beginning, in one batch.

    Args:
        stream: Name of the stream.
        endpoint: URL of the fake AWS.
        wait: Seconds that a task waits at the tip of its shard; the default is the connector's. Before the first record, a task
            always waits for more than 5 s: the connector refuses less.
    """
    return {
        "kinesis.streamName": stream,
        "kinesis.endpointUrl": endpoint,
        "kinesis.region": "us-east-1",
        "kinesis.kinesisRegion": "us-east-1",
        "kinesis.startingPosition": "TRIM_HORIZON",
        "kinesis.maxFetchRecordsPerShard": "100000000",
        "kinesis.internal.dataQueueWaitTimeoutSec": str(wait),
        "kinesis.internal.maxDataQueueEmptyCount": str(5 // wait + 1),
    }


def jar_path() -> Path:
    """Return the file in which the jar is or will be cached."""
    recipe = "\n".join((COMMIT, *_MAVEN, _ANCHOR, _ADDED))
    return CACHE / f"jvm-connector-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.jar"


def build(source: str | None = None) -> Path:
    """Return the jar; builds it if it is not there.

    Args:
        source: Checkout or git directory that contains `COMMIT`; None for the environment variable, or else GitHub.

    Raises:
        CannotInstallError: If the machine lacks Java, Maven or git, or if the source or a package cannot be reached.
        RuntimeError: If the build failed for another reason.
    """
    jar = jar_path()
    if jar.exists():
        return jar
    require("java", 17, "The connector")
    for program in ("git", "mvn"):
        if shutil.which(program) is None:
            raise CannotInstallError(f"building the connector needs {program} on the PATH")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as building:
        folder = Path(building) / "connector"
        origin = source or os.environ.get(SOURCE_VARIABLE) or REPOSITORY
        try:
            for command in (
                ("git", "clone", "--quiet", "--no-checkout", origin, str(folder)),
                ("git", "-C", str(folder), "checkout", "--quiet", COMMIT),
            ):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        except subprocess.SubprocessError as error:
            said = str(getattr(error, "stderr", "") or error).strip()
            raise CannotInstallError(
                f"the connector's source is not to be had from {origin} (--source or {SOURCE_VARIABLE} names a checkout): {said}"
            ) from error
        sink = folder / _SINK
        text = sink.read_text()
        assert text.count(_ANCHOR) == 1, "the connector's source has changed"
        sink.write_text(text.replace(_ANCHOR, _ADDED + _ANCHOR))
        sys.stderr.write("Building the JVM connector with Maven (some minutes) ...\n")
        run("mvn", "--batch-mode", "--quiet", "-Dmaven.test.skip=true", *_MAVEN, "package", cwd=folder)
        (built,) = (folder / "target").glob("spark-streaming-sql-kinesis-connector_*.jar")
        built.rename(jar)
    return jar


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", help="checkout or git directory of the connector")
    try:
        print(build(parser.parse_args().source))
    except CannotInstallError as error:
        print(f"skipped: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
