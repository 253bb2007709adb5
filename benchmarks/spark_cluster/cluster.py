"""A standalone Spark cluster on this machine, the fake Kinesis that its jobs use, and jobs that outlive their drivers."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.spark_cluster.processes import Child, look

ROOT = Path(__file__).parents[2]
ACCOUNT = {"AWS_ACCESS_KEY_ID": "fake", "AWS_SECRET_ACCESS_KEY": "fake", "AWS_DEFAULT_REGION": "us-east-1"}
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Of the two workers: Spark runs no second attempt of a task on the host of the first one."""


SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}
"""Configuration with which Spark runs a slow task a second time early."""


class Cluster:
    """A master and two workers, and the stream that its jobs read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._options = options
        self._children: dict[str, Child] = {}
        self.sessions: set[int] = set()
        environment = {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOSTS[0],
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            **ACCOUNT,
        }
        self._environment = environment
        try:
            self._begin()
        except BaseException:
            self.stop()  # no caller has the object, which could stop what has started
            raise

    def _begin(self) -> None:
        """Fill the stream, and start the master and the workers."""
        folder, options = self._folder, self._options
        self.stream = self._start(
            "stream",
            [
                sys.executable, "-m", "benchmarks.spark_cluster.stream", str(folder), "--shards", str(options.shards),
                "--rows", str(options.rows), "--rows-per-record", str(options.rows_per_record), "--hours", str(options.hours),
                "--orders", str(options.write_rows),
            ],
        )  # fmt: skip
        self.endpoint = self.stream.first_line()
        self.truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
        spark_class = str(self._home / "bin" / "spark-class")
        ports = ["--port", "0", "--webui-port", "0"]
        master = self._start(
            "master", [spark_class, "org.apache.spark.deploy.master.Master", "--host", HOSTS[0], *ports]
        )
        self.url = master.wait_for_text("Starting Spark master at").rpartition(" ")[2]
        master.wait_for_text("New state: ALIVE")
        self._worker = [spark_class, "org.apache.spark.deploy.worker.Worker", *ports]
        self._worker += ["--cores", str(-(-max(options.executors) // 2) * options.cores), "--memory", "8g"]
        for number in range(len(HOSTS)):
            self.start_worker(number)

    def _start(self, name: str, command: list[str]) -> Child:
        child = Child(command, self._folder / f"{name}.log", self._environment)
        self._children[name] = child
        self.sessions.add(child.session)
        return child

    def start_worker(self, number: int) -> None:
        """Start a worker, also in place of one that was killed."""
        name = f"worker-{number}"
        (self._folder / f"{name}.log").unlink(missing_ok=True)
        place = ["--host", HOSTS[number], "--work-dir", str(self._folder / name)]
        child = self._start(name, [*self._worker, *place, self.url])
        child.wait_for_text("Successfully registered with master")

    def restart_dead_workers(self) -> None:
        for number in range(len(HOSTS)):
            child = self._children[f"worker-{number}"]
            if child.poll() is not None:
                child.kill()  # its executors, too
                self.start_worker(number)

    def submit(
        self, name: str, script: str, task: dict[str, Any], executors: int, conf: dict[str, str]
    ) -> Child:
        """Submit a script of this folder with a JSON object, and ``conf`` in addition to what all jobs have."""
        conf = {
            "spark.cores.max": str(executors * self._options.cores),
            "spark.executor.cores": str(self._options.cores),
            "spark.executor.memory": "1g",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            "spark.task.maxFailures": "50",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            **{f"spark.executorEnv.{key}": value for key, value in ACCOUNT.items()},
            **conf,
        }
        command = [str(self._home / "bin" / "spark-submit"), "--master", self.url]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        return self._start(name, [*command, str(Path(__file__).with_name(script)), json.dumps(task)])

    def source(self, stream: str, **more: str) -> dict[str, str]:
        """Return options of the data source for a stream, from its beginning."""
        where = {"streamName": stream, "endpointUrl": self.endpoint, "region": "us-east-1"}
        return {**where, "startingPosition": "TRIM_HORIZON", **more}

    def kill(self, part: str, *, every: bool = False) -> bool:
        """SIGKILL to the process of a part that worked most, or to all of them; returns whether there was one.

        The process that works is the one to kill: a Python worker, and not the daemon that forks them.
        """
        found = sorted((one for one in look(self.sessions) if one.part == part), key=lambda one: -one.cpu)
        for victim in found if every else found[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
        return bool(found)

    def stop(self) -> None:
        for child in reversed(self._children.values()):
            child.kill()


class Job:
    """A job that is submitted again whenever its driver is gone.

    Args:
        name: Of its log.
        done: File that it writes at its end.
        again: Times that it may be submitted again.

    Attributes:
        submissions: How often it was submitted.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        script: str,
        task: dict[str, Any],
        executors: int,
        *,
        done: Path,
        again: int = 0,
        conf: dict[str, str] | None = None,
    ) -> None:
        self._cluster, self._name, self._done, self._again = cluster, name, done, again
        self._submission = (script, task, executors, conf or {})
        self.submissions = 0
        self._child = self._submit()

    def _submit(self) -> Child:
        self.submissions += 1
        return self._cluster.submit(f"{self._name}-{self.submissions}", *self._submission)

    def has_ended(self) -> bool:
        """Return whether it has ended; start again what was killed.

        Raises:
            RuntimeError: If it failed more often than it may.
        """
        status = self._child.poll()
        if status == 0 and self._done.exists():
            return True
        if status is not None:
            if self.submissions > self._again:
                raise RuntimeError(
                    f"the job {self._name} ended with status {status}; its log ends:\n{self._child.tail()}"
                )
            self._child.kill()
            print(f"  {self._name} ended with status {status} and begins again", flush=True)
            self._child = self._submit()
        self._cluster.restart_dead_workers()
        return False

    def kill(self) -> None:
        self._child.kill()
