"""Kills at each step of a job that writes rows with names, with speculation on, and what readers find afterwards.

The job copies ``orders`` (see `write_job`). It runs twice: with names only, and with ``reconcile`` in addition, which reads the target before a
task that may repeat an earlier one puts its rows. Steps come one after another, while the job runs.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.spark_cluster.cluster import SPECULATING, Cluster, Job
from benchmarks.spark_cluster.processes import look
from benchmarks.spark_cluster.stream import COPIES, ORDERS
from benchmarks.spark_cluster.write_job import FOLDERS, TASK_STEPS

PATIENCE = 600.0
"""Seconds within which a step has to come."""


class Scene:
    """A job that copies the stream, and what can be done to it.

    Args:
        target: Stream that it writes into.
        reconcile: Value of the option; None without it.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, executors: int, target: str, reconcile: str | None
    ) -> None:
        self._cluster, self._folder, self._target = cluster, folder, target
        for name in FOLDERS:
            (folder / name).mkdir(parents=True)
        write = cluster.source(
            target, idempotent="true", dedupNamespace="orders", recordMaxBufferedTime="50ms"
        )
        del write["startingPosition"]
        if reconcile is not None:
            write["reconcile"] = reconcile
        self._task = {
            "read": cluster.source(ORDERS, maxRowsPerTrigger="8000", maxTasks="4"),
            "write": write,
            "folder": str(folder),
        }
        conf = {**SPECULATING, "spark.sql.execution.arrow.maxRecordsPerBatch": "400"}
        self._submission: dict[str, Any] = {"script": "write_job.py", "executors": executors, "conf": conf}
        self._job = self._submit(folder.name, self._task, folder / "ended", again=20)

    def _submit(self, name: str, task: dict[str, Any], done: Path, again: int = 0) -> Job:
        return Job(self._cluster, name, task=task, done=done, again=again, **self._submission)

    @property
    def submissions(self) -> int:
        return self._job.submissions

    def _await(self, what: str, condition: Callable[[], bool], pause: float = 0.05) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self._job.has_ended():
                raise RuntimeError(f"the job ended before the step {what!r}; take more --write-rows")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the step {what!r} did not come within {PATIENCE:g} s")
            time.sleep(pause)

    def _last(self, log: str) -> int:
        """Return the last batch in a log of the checkpoint, or -1."""
        files = (self._folder / "checkpoint" / log).glob("[0-9]*")
        return max((int(path.name) for path in files), default=-1)

    def _fake(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._cluster.endpoint}/_fake/{path}", data=data)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def _puts(self) -> int:
        return int(self._fake("stats")["calls"].get("PutRecords", 0))

    def in_a_task(self, step: str) -> None:
        """Arm a step of the job, and wait until a task has done it."""
        (self._folder / "armed" / step).touch()
        self._await(step, (self._folder / "done" / step).exists)

    def while_unanswered(self, step: str, fault: dict[str, Any], part: str) -> None:
        """Kill all processes of a part while one of them waits for the response of a request that is stored."""
        fault = {"operation": "PutRecords", "stream": self._target, "count": 1, **fault}
        (number,) = self._fake("faults", fault)["ids"]

        def fired() -> bool:
            return any(one["id"] == number and one["fired"] for one in self._fake("faults"))

        self._await(step, fired)
        self._cluster.kill(part, every=True)

    def in_a_batch(self, step: str, part: str, ready: Callable[[], bool]) -> None:
        """Kill the process of a part as soon as something is so."""
        self._await(step, ready, pause=0.02)
        self._await(step, lambda: self._cluster.kill(part))

    def stored_not_committed(self) -> Callable[[], bool]:
        batch, puts = self._last("commits"), self._puts()
        return lambda: self._last("offsets") > self._last("commits") > batch and self._puts() > puts + 2

    def in_the_commit(self) -> Callable[[], bool]:
        """A driver starts the process that commits with its first commit."""
        gone = False

        def begun() -> bool:
            nonlocal gone
            present = any(process.part == "commit process" for process in look(self._cluster.sessions))
            gone = gone or not present
            return gone and present

        return begun

    def committed(self) -> Callable[[], bool]:
        batch = self._last("commits")
        return lambda: self._last("commits") > batch

    def finish(self) -> dict[str, Any]:
        """Let the job end; return what readers find."""
        while not self._job.has_ended():
            time.sleep(0.2)
        result = self._folder / "check.json"
        job = self._submit(f"{self._folder.name}-check", {**self._task, "check": True}, result)
        try:
            while not job.has_ended():
                time.sleep(0.2)
        finally:
            job.kill()
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def stop(self) -> None:
        self._job.kill()


def steps_of(scene: Scene) -> dict[str, Callable[[str], None]]:
    """Return what to do, by the name of the step."""
    lost = {"kind": "timeout_after_storing"}
    late = {"kind": "late_store", "seconds": 3}
    return {
        **dict.fromkeys(TASK_STEPS, scene.in_a_task),
        "Python workers, rows stored and unanswered": lambda step: scene.while_unanswered(
            step, lost, "Python worker"
        ),
        "executors, rows stored and unanswered": lambda step: scene.while_unanswered(
            step, lost, "executor JVM"
        ),
        "executors, rows stored 3 s later": lambda step: scene.while_unanswered(step, late, "executor JVM"),
        "driver, rows stored and not committed": lambda step: scene.in_a_batch(
            step, "driver JVM", scene.stored_not_committed()
        ),
        "driver, in the commit": lambda step: scene.in_a_batch(step, "driver JVM", scene.in_the_commit()),
        "driver, behind the commit": lambda step: scene.in_a_batch(step, "driver JVM", scene.committed()),
        "source's process": lambda step: scene.in_a_batch(step, "source process", scene.committed()),
        "cluster worker": lambda step: scene.in_a_batch(step, "cluster worker", scene.committed()),
    }


VARIANTS: dict[str, str | None] = {"names": None, "reconcile": "1h"}
"""Values of the option ``reconcile``."""


def write_under_kills(cluster: Cluster, folder: Path, executors: int, variants: Sequence[str]) -> None:
    """Copy the stream under kills, in some of `VARIANTS`, and print what readers find.

    Raises:
        RuntimeError: If a reader of this SDK misses a row or has one twice, or any reader misses one.
    """
    problems = []
    for target, variant in zip(COPIES, variants, strict=False):
        reconcile = VARIANTS[variant]
        scene = Scene(cluster, folder / target, executors, target, reconcile)
        began = time.monotonic()
        print(f"\nwrites with dedupId, reconcile={reconcile}, {executors} executors, speculation", flush=True)
        try:
            steps = steps_of(scene)
            for step, act in steps.items():
                act(step)
                print(f"  {time.monotonic() - began:6.1f} s  {step}", flush=True)
            found = scene.finish()
        finally:
            scene.stop()
        print(
            f"  {len(steps)} steps, {scene.submissions} submissions, {time.monotonic() - began:.0f} s, {found['rows']:,} rows"
        )
        for reader in ("of this SDK", "any other"):
            told = found[reader]
            print(
                f"  reader {reader:11}: {told['missing']} missing, {told['again']:,} again, {told['foreign']} foreign",
                flush=True,
            )
            if told["missing"] or told["foreign"] or (reader == "of this SDK" and told["again"]):
                problems.append(f"{target}: reader {reader}: {told}")
    if problems:
        raise RuntimeError("; ".join(problems))
