"""Processes of a scenario: fake Kinesis, DynamoDB Local, MultiLangDaemons, and our workers."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3

from integration.commands import CLI, KEYS
from integration.guarded import Guarded
from integration.java import install as kcl
from integration.java.journal import Reader
from integration.localstack.dynamodb_local import dynamodb_local
from kinesis_sdk.testing import start_server_process

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# Settings that make a Java fleet fast without changing what its leases mean: how often the leader assigns leases
# (workers look for theirs twice as often) and balances them, how long a worker waits at its start and for a parent.
QUICK: Mapping[str, object] = {
    "leaseAssignmentIntervalMillis": 2000,
    "varianceBalancingFrequency": 1,
    "shardSyncIntervalMillis": 1000,
    "parentShardPollIntervalMillis": 1000,
    "idleTimeBetweenReadsInMillis": 250,
}
QUICK_2: Mapping[str, object] = {
    name: value
    for name, value in QUICK.items()
    if name not in {"leaseAssignmentIntervalMillis", "varianceBalancingFrequency"}
}
"""The same for KCL 2.x, where each worker looks for leases every two failover times, 20 s."""
PATIENT: Mapping[str, object] = {"shardSyncIntervalMillis": 1000}
"""The KCL's own intervals, but for the pause of a minute after each shard sync."""
METRICS: Mapping[str, str] = {"2.7.2": "off", "3.1.3": "separate_table", "3.5.1": "lease_table"}
"""Our ``worker_metrics`` in a fleet that began with a version of the KCL."""
# A test's JVM lives for a minute: the second compiler would not pay off.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")

_LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} [%thread] %-5level %logger{36} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


class WorkerProcess:
    """A worker of either kind, and its events.

    Attributes:
        name: Its worker id.
        process: Its process: the JVM of a Java worker.
        started_at: Monotonic time.
    """

    def __init__(self, name: str, journal: Path, process: Guarded) -> None:
        self.name = name
        self._reader = Reader(journal)
        self.process = process
        self.started_at = time.monotonic()

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return its events so far, of some kinds."""
        return [event for event in self._reader.events() if not kinds or event["event"] in kinds]

    def stop(self, seconds: float = 300.0) -> float:
        """End it in order; return the seconds that took."""
        began = time.monotonic()
        self.process.signal(signal.SIGTERM)
        self.process.wait(seconds)
        return time.monotonic() - began

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.signal(signal.SIGKILL)
        self.process.wait(10)


def _trust_store(ca_file: str, folder: Path) -> tuple[str, str]:
    """Return the options of a JVM that trusts only this certificate."""
    store = folder / "trusted.p12"
    # The password protects nothing, but a Java key store must have one.
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-file", ca_file, "-keystore", store, "-storepass", "changeit"],
        check=True, capture_output=True,
    )  # fmt: skip
    return f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"


class Stage:
    """One account for workers of both kinds: our fake's Kinesis, and a DynamoDB.

    Args:
        folder: For logs, journals and settings.
        kcl_root: Result of `install.install`.
        kinesis_url: The fake.
        dynamodb_url: DynamoDB.
        ca_file: Certificate that clients must trust if the fake speaks TLS.

    Attributes:
        ca_file: As the argument.
    """

    def __init__(
        self, folder: Path, kcl_root: Path, kinesis_url: str, dynamodb_url: str, ca_file: str | None = None
    ) -> None:
        self.folder = folder
        self._kcl_root = kcl_root
        self.kinesis_url = kinesis_url
        self._dynamodb_url = dynamodb_url
        self.ca_file = ca_file
        self._trust = () if ca_file is None else _trust_store(ca_file, folder)
        self.kinesis = boto3.client("kinesis", endpoint_url=kinesis_url, verify=ca_file)
        self.dynamodb = boto3.client("dynamodb", endpoint_url=dynamodb_url, verify=ca_file)
        self.workers: list[WorkerProcess] = []

    def environment(self) -> dict[str, str]:
        """Return a process environment with this account and no other."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
        return {
            **kept,
            **KEYS,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_KINESIS": self.kinesis_url,
            "AWS_ENDPOINT_URL_DYNAMODB": self._dynamodb_url,
            "AWS_ENDPOINT_URL_CLOUDWATCH": self.kinesis_url,
            **({} if self.ca_file is None else {"AWS_CA_BUNDLE": self.ca_file}),
        }

    def _file(self, application: str, name: str) -> Path:
        """Return a file of a worker. Names of workers are unique only within an application."""
        folder = self.folder / application
        folder.mkdir(exist_ok=True)
        return folder / name

    def _options(
        self,
        name: str,
        application: str,
        stand_at: Sequence[str],
        *,
        count_only: bool,
        middle: float = 0.0,
    ) -> dict[str, Any]:
        return {
            "journal": str(self._file(application, f"{name}.journal")),
            "worker": name,
            "stand_at": list(stand_at),
            "middle": middle,
            "count_only": count_only,
        }

    def _add(self, name: str, application: str, process: Guarded) -> WorkerProcess:
        worker = WorkerProcess(name, self._file(application, f"{name}.journal"), process)
        self.workers.append(worker)
        return worker

    def child(
        self, name: str, application: str, *, stand_at: Sequence[str] = (), count_only: bool = False
    ) -> Path:
        """Return the executable of a daemon: ``child.py``, for a worker with this id. See `start_java`."""
        options = self._file(application, f"{name}.json")
        options.write_text(json.dumps(self._options(name, application, stand_at, count_only=count_only)))
        # The daemon splits the executable at blanks, so a path with blanks would not work.
        script = self._file(application, f"{name}.sh")
        words = shlex.join([sys.executable, str(HERE / "child.py"), str(options)])
        script.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(self._kcl_root))} exec {words}\n")
        script.chmod(0o755)
        return script

    def start_java(
        self,
        name: str,
        stream: str,
        application: str,
        *,
        stand_at: Sequence[str] = (),
        count_only: bool = False,
        properties: Mapping[str, object] = QUICK,
        jvm: Sequence[str] = _SHORT_LIVED,
        grace_millis: int = 30_000,
    ) -> WorkerProcess:
        """Run a MultiLangDaemon.

        Args:
            name: Its worker id.
            stream: Stream name.
            application: Application name.
            stand_at: See `journal.Processing`.
            count_only: Whether batches are only counted and checkpointed, for measuring.
            properties: KCL settings besides those that the scenario needs.
            jvm: Options of the JVM.
            grace_millis: ``shutdownGraceMillis``. The daemon's default, 0, leaves no time to shut anything down.
        """
        script = self.child(name, application, stand_at=stand_at, count_only=count_only)
        return self.start_daemon(
            name, stream, application, script, properties=properties, jvm=jvm, grace_millis=grace_millis
        )

    def start_daemon(
        self,
        name: str,
        stream: str,
        application: str,
        executable: Path,
        *,
        ours: bool = False,
        properties: Mapping[str, object] = QUICK,
        jvm: Sequence[str] = _SHORT_LIVED,
        grace_millis: int | None = 30_000,
        arguments: Sequence[str] = (),
        cwd: Path = ROOT,
    ) -> WorkerProcess:
        """Run a MultiLangDaemon with any child.

        Args:
            name: Its worker id.
            stream: Stream name.
            application: Application name.
            executable: The child.
            ours: Whether to run ours, `kinesis-sdk multilang`, instead of the real one.
            properties: See `start_java`.
            jvm: Options of the JVM.
            grace_millis: See `start_java`; None keeps the daemon's default.
            arguments: Further arguments of ours.
            cwd: Working directory.
        """
        settings = {
            "executableName": executable,
            "streamName": stream,
            "applicationName": application,
            "workerId": name,
            "regionName": "us-east-1",
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "initialPositionInStream": "TRIM_HORIZON",
            "retrievalMode": "POLLING",
            "metricsLevel": "NONE",
            "kinesisEndpoint": self.kinesis_url,
            "dynamoDBEndpoint": self._dynamodb_url,
            **({} if grace_millis is None else {"shutdownGraceMillis": grace_millis}),
            **properties,
        }
        file = self._file(application, f"{name}.properties")
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        command = [
            "java", *jvm, *self._trust, "-cp", f"{self._kcl_root}/amazon_kclpy/jars/*",
            "software.amazon.kinesis.multilang.MultiLangDaemon",
            "--properties-file", file, "--log-configuration", self._logback(),
        ]  # fmt: skip
        if ours:
            command = [*CLI, "multilang", file, *arguments]
        log = self._file(application, f"{name}.log")
        return self._add(name, application, Guarded(command, log, env=self.environment(), cwd=cwd))

    def start_worker(
        self,
        name: str,
        stream: str,
        application: str,
        *,
        version: str,
        stand_at: Sequence[str] = (),
        middle: float = 0.0,
        count_only: bool = False,
        properties: Mapping[str, object] | None = None,
        jvm: Sequence[str] = _SHORT_LIVED,
        grace_millis: int = 30_000,
        aggregator_util: str | None = None,
    ) -> WorkerProcess:
        """Run a Java worker, ``Worker.java``, with any version of the KCL.

        Args:
            name: Its worker id.
            stream: Stream name.
            application: Application name.
            version: One of `install.VERSIONS`.
            stand_at: See `journal.Processing`.
            middle: See `journal.Processing`.
            count_only: Whether batches are only counted and checkpointed, for measuring.
            properties: KCL settings by the names of its configuration classes, which are also the names of the
                MultiLangDaemon's properties; None for `QUICK`, or `QUICK_2` for a 2.x.
            jvm: Options of the JVM.
            grace_millis: Time to shut down in order after SIGTERM; with 0 the process just ends.
            aggregator_util: Class of examples/java that opens aggregates; None for the KCL's own.

        Raises:
            CannotInstallError: If the machine lacks something.
        """
        if properties is None:
            properties = QUICK_2 if version.startswith("2.") else QUICK
        # Installed at the first use, so that a test fetches only the version it needs.
        jars, classes = kcl.class_path(version), kcl.worker(version)
        settings = {
            **self._options(name, application, stand_at, count_only=count_only, middle=middle),
            "stand_at": ",".join(stand_at),
            "stream": stream,
            "application": application,
            "region": "us-east-1",
            "kinesis": self.kinesis_url,
            "dynamodb": self._dynamodb_url,
            "grace_millis": grace_millis,
            "aggregator_util": aggregator_util or "",
            **{f"kcl.{key}": value for key, value in properties.items()},
        }
        file = self._file(application, f"{name}.properties")
        lines = [f"{key} = {value}".replace("\\", "\\\\") for key, value in settings.items()]
        file.write_text("\n".join(lines))
        path = f"{classes}:{jars}/*"
        if aggregator_util is not None:
            codec, more = kcl.codec(version)
            path = f"{path}:{codec}:{more}/*"
        command = [
            "java", *jvm, *self._trust, f"-Dlogback.configurationFile={self._logback()}", "-cp", path, "Worker", file,
        ]  # fmt: skip
        log = self._file(application, f"{name}.log")
        return self._add(name, application, Guarded(command, log, env=self.environment()))

    def _logback(self) -> Path:
        file = self.folder / "logback.xml"
        file.write_text(_LOGBACK)
        return file

    def start_ours(
        self,
        name: str,
        stream: str,
        application: str,
        *,
        stand_at: Sequence[str] = (),
        middle: float = 0.0,
        count_only: bool = False,
        **config: Any,
    ) -> WorkerProcess:
        """Run a worker of ours with settings of `ConsumerConfig`. See `start_worker` for the other arguments."""
        options = {
            **self._options(name, application, stand_at, count_only=count_only, middle=middle),
            "stream": stream,
            "application": application,
            "config": {"initial_position": "TRIM_HORIZON", "worker_metrics": "separate_table", **config},
        }
        command = [sys.executable, "-m", "integration.java.ours", json.dumps(options)]
        log = self._file(application, f"{name}.log")
        return self._add(name, application, Guarded(command, log, env=self.environment()))

    def rows(self, application: str) -> dict[str, dict[str, Any]]:
        """Return the leases of an application, by key; empty if there is no table."""
        return {key: item for key, item in self._items(application).items() if "checkpoint" in item}

    def foreign(self, application: str) -> dict[str, dict[str, Any]]:
        """Return the other items of the lease table: KCL 3.5 keeps its leader, its workers and its migrations there."""
        return {key: item for key, item in self._items(application).items() if "checkpoint" not in item}

    def _items(self, application: str) -> dict[str, dict[str, Any]]:
        try:
            items = self.dynamodb.scan(TableName=application, ConsistentRead=True)["Items"]
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return {}
        return {item["leaseKey"]["S"]: item for item in items}

    def end_workers(self) -> None:
        """Kill every worker that still runs."""
        while self.workers:
            self.workers.pop().process.close()

    def close(self) -> None:
        """End everything that was started here."""
        self.end_workers()
        self.kinesis.close()
        self.dynamodb.close()


@contextlib.contextmanager
def open_stage(folder: Path, *fake_arguments: str, fake_dynamodb: bool = False) -> Iterator[Stage]:
    """Open a stage for the length of a with statement.

    Args:
        folder: For logs, journals and settings.
        fake_arguments: Command-line arguments of the fake, for example streams to create.
        fake_dynamodb: Whether leases are in our fake instead of DynamoDB Local.

    Raises:
        CannotInstallError: If the machine lacks something.
    """
    root = kcl.install()
    with contextlib.ExitStack() as stack:
        fake = stack.enter_context(start_server_process(*fake_arguments))
        dynamodb = (
            fake.endpoint_url
            if fake_dynamodb
            else stack.enter_context(dynamodb_local(folder / "dynamodb.log"))
        )
        stage = Stage(folder, root, fake.endpoint_url, dynamodb, fake.ca_file)
        stack.callback(stage.close)
        yield stage
