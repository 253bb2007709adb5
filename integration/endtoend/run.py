"""A run: producers and workers as processes on one stream, the faults on the way, and the findings.

```python
options = RunOptions(endpoint_url=url, control_url=url)
with Run(options, folder) as run:
    run.start()
    run.go_on(5)
    run.stream.split()
    run.kill_worker()
    run.go_on(10)
    findings = run.finish()
```

`go_on` and `until` read logs, scan the lease table, take samples and carry out due actions, in the caller's thread. The processes
may use a proxy; the run itself connects directly.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from integration.endtoend.checker import Findings, check
from integration.endtoend.logs import ProducerLog, WorkerLog
from integration.endtoend.processes import ChildProcess
from integration.endtoend.recorded_events import (
    STRIDE,
    Event,
    Pause,
    ProducerRun,
    RecordedEvents,
    Sample,
    Violation,
    WorkerRun,
)
from integration.endtoend.stream import StreamControl
from integration.endtoend.worker_process import STALL_SECONDS
from kinesis_sdk.common.aws import call_with_retries, make_client
from kinesis_sdk.common.errors import ResourceNotFoundError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing.flights import load_flights

_TICK = 0.05
_CHECK_SECONDS = 0.25
_SAMPLE_SECONDS = 1.0
_EFFECT = 2.0
_START_TIMEOUT = 300.0
_STOP_TIMEOUT = 300.0
_CONTROL_TIMEOUT = 120.0
"""Timeout of the run's own calls. LocalStack starts DynamoDB at the first call, which is slow on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run.

    Attributes:
        endpoint_url: Endpoint of the processes.
        control_url: Endpoint of the run itself: the same one, without a proxy.
        shards: Number of shards at first.
        workers: Number of worker processes at first.
        producers: For each producer process at first, whether it keeps order.
        rate: Records per second of each producer.
        failover_time: The workers', in seconds.
        checkpoint_every: Minimum seconds between two checkpoints of a shard.
        fan_out: Every nth worker reads by enhanced fan-out; 0: none.
        spared: Whether the first worker and the first producer are never killed or stopped, but frozen, so that their
            resource usage over time can be observed.
        consumer: Further settings of `ConsumerConfig`.
        producer: Further settings of `ProducerConfig`.
        environment: Replaces or adds environment variables of the processes; None removes one.
        batch_seconds: Seconds that a handler takes for each batch, so that workers lag.
        seed: Decides which processes and shards the actions hit.
        drain_timeout: If no new record is processed for this many seconds, the missing ones count as lost.
    """

    endpoint_url: str
    control_url: str
    shards: int = 8
    workers: int = 3
    producers: tuple[bool, ...] = (False, True)
    rate: float = 200.0
    failover_time: float = 5.0
    checkpoint_every: float = 1.0
    fan_out: int = 0
    spared: bool = False
    consumer: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    batch_seconds: float = 0.0
    seed: int = 0
    drain_timeout: float = 180.0


class _Worker(NamedTuple):
    process: ChildProcess
    log: WorkerLog


class _Producer(NamedTuple):
    process: ChildProcess
    log: ProducerLog


class Run:
    """See the module. A context manager that always leaves no process, stream or table behind.

    Args:
        options: Its options.
        folder: For the logs of the processes.
        say: Called with a line for each event.

    Attributes:
        recorded: What happened so far.
        stream: Splits, merges and scales the stream.
        events: What was done.
        samples: One a second.
        violations: Faults of the processes themselves: ended without a stop, did not end on request.
    """

    def __init__(self, options: RunOptions, folder: Path, say: Callable[[str], None] = print) -> None:
        name = f"endtoend-{uuid.uuid4().hex[:8]}"
        self.options = options
        self.recorded = RecordedEvents(failover_time=options.failover_time)
        self.events: list[Event] = []
        self.samples: list[Sample] = []
        self.violations: list[Violation] = []
        self._folder = folder
        self._say = say
        self._rng = random.Random(options.seed)
        self._flights = load_flights()
        self._run = name[-8:]
        self._name = name
        self._kinesis, self._dynamodb = (
            make_client(service, endpoint_url=options.control_url, read_timeout=_CONTROL_TIMEOUT)
            for service in ("kinesis", "dynamodb")
        )
        self._store = DynamoDBLeaseStore(
            self._dynamodb, self._name, sleep=time.sleep, monotonic=time.monotonic
        )
        self.stream = StreamControl(
            self._kinesis, StreamId.parse(name), self._rng, lambda text: self.note("reshard", text)
        )
        self._workers: dict[str, _Worker] = {}
        self._producers: dict[str, _Producer] = {}
        self._producer_logs: list[ProducerLog] = []
        self._numbers = itertools.count(1)
        self._lines = itertools.count()
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = self._checked_at = self._sampled = 0.0
        self._processed: set[int] = set()
        self._began = time.time()
        environment = {**os.environ, **options.environment}
        self._environment = {name: value for name, value in environment.items() if value is not None}

    # -- life cycle ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        call_with_retries(self._dynamodb.list_tables, operation="ListTables", client=self._dynamodb)
        self.stream.create(self.options.shards)
        self.until(lambda: not self.stream.is_resharding, _START_TIMEOUT, "the stream to be ACTIVE")
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes():
            process.destroy()
        self.stream.delete()
        with contextlib.suppress(ResourceNotFoundError):  # No worker came far enough to create it.
            call_with_retries(
                lambda: self._dynamodb.delete_table(TableName=self._name),
                operation="DeleteTable",
                client=self._dynamodb,
            )
        self._kinesis.close()
        self._dynamodb.close()

    def start(self) -> None:
        """Start everything; return once the workers hold all leases, at least one each, and producers put."""
        for _ in range(self.options.workers):
            self.add_worker()
        self.until(self._all_workers_have_leases, _START_TIMEOUT, "the workers to share the leases")
        for ordered in self.options.producers:
            self.add_producer(ordered=ordered)
        self.until(
            lambda: all(p.log.put for p in self._producers.values()), _START_TIMEOUT, "producers to put"
        )

    def _all_workers_have_leases(self) -> bool:
        held = [worker.log.leases for worker in self._workers.values()]
        return sum(held) >= self.options.shards and min(held) > 0

    def go_on(self, seconds: float) -> None:
        """Let it run."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._pump()

    def until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Let it run until a condition holds; raise TimeoutError if it does not in time."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                states = "".join(f"\n{one.name}: {one.stacks()}" for one in self._processes())
                raise TimeoutError(f"waited {timeout:g} s for {what}{states}")
            self._pump()

    def finish(self) -> Findings:
        """Stop the producers, wait until the workers have processed everything, stop them, and check."""
        self.end(lambda: len(self._missing()))
        findings = check(self.recorded)
        findings.violations.extend(self.violations)
        return findings

    def end(self, count_missing: Callable[[], int]) -> None:
        """Stop the producers, wait until `count_missing` returns 0, and stop the workers."""
        while self._timed:  # Undo now what was to be undone later.
            heapq.heappop(self._timed)[2]()
        # A process that was just started does not handle SIGTERM yet.
        self.until(self._all_have_started, _START_TIMEOUT, "all processes to start")
        for name in list(self._producers):
            self.stop_producer(name)
        self.until(lambda: not self._producers, _STOP_TIMEOUT, "the producers to end")
        self._drain(count_missing)
        for worker in self._workers.values():
            worker.process.terminate()
        self.until(lambda: not self._workers, _STOP_TIMEOUT, "the workers to end")
        rows = self._store.list(consistent=True)
        self.recorded.table_monitor.check(rows, time.time())
        self.recorded.rows = {row.lease_key: row for row in rows}
        self.recorded.shards = {shard.shard_id: shard for shard in self.stream.shards(only_open=False)}

    def _all_have_started(self) -> bool:
        return all(w.log.has_started for w in self._workers.values()) and all(
            p.log.put for p in self._producers.values()
        )

    def _drain(self, count_missing: Callable[[], int]) -> None:
        moved = time.monotonic()
        missing = count_missing()
        while missing and time.monotonic() - moved < self.options.drain_timeout:
            self.go_on(0.2)
            now_missing = count_missing()
            if now_missing < missing:
                moved = time.monotonic()
            missing = now_missing
        if missing:
            self.note("lost", f"{missing} records are missing")
            return
        # Leases of closed shards are finished and deleted a little later.
        end = time.monotonic() + self.options.drain_timeout
        while not self._is_tidy() and time.monotonic() < end:
            self.go_on(0.5)

    def _missing(self) -> set[int]:
        stored = {number for number, put in self.recorded.puts.items() if put.position is not None}
        return stored - self._processed

    def _is_tidy(self) -> bool:
        open_ids = {shard.shard_id for shard in self.stream.shards()}
        rows = self._store.list(consistent=True)
        waiting = {p for row in rows if not row.is_started for p in row.parent_shard_ids}
        return {row.lease_key for row in rows} - waiting == open_ids

    @property
    def application(self) -> str:
        """Name of the application, its lease table and its stream."""
        return self._name

    def rows(self) -> list[Lease]:
        """Return the lease table."""
        return self._store.list(consistent=True)

    def workers(self) -> list[str]:
        """Return the living workers that were not told to stop, frozen ones included."""
        return [name for name, worker in self._workers.items() if not worker.process.leaving]

    # -- what is done to it -------------------------------------------------------------------------------------

    def add_worker(self) -> str:
        """Start another worker; return its name."""
        name = f"worker-{next(self._numbers)}"
        pushed = self.options.fan_out and len(self.recorded.workers) % self.options.fan_out == 0
        settings = {
            "stream": self._name,
            "application_name": self._name,
            "run": self._run,
            "worker_id": name,
            "checkpoint_every": self.options.checkpoint_every,
            "batch_seconds": self.options.batch_seconds,
            "region": None,
            "endpoint_url": self.options.endpoint_url,
            "config": {
                "initial_position": "TRIM_HORIZON",
                "failover_time": self.options.failover_time,
                "idle_time_between_reads": 0.5,
                "lease_cleanup_interval": 2.0,
                "shard_sync_interval": 10.0,
                "parent_shard_poll_interval": 0.5,
                "retrieval_mode": "fanout" if pushed else "polling",
                **self.options.consumer,
            },
        }
        module = "integration.endtoend.worker_process"
        process = ChildProcess(module, name, settings, self._folder, self._environment)
        run = self.recorded.workers[name] = WorkerRun(name)
        self._workers[name] = _Worker(process, WorkerLog(process.log, run, self.recorded))
        return name

    def add_producer(self, *, ordered: bool) -> str:
        """Start another producer; return its name."""
        number = next(self._numbers)
        name = f"producer-{number}"
        run = self.recorded.producers[name] = ProducerRun(name, number * STRIDE, ordered=ordered)
        settings = {
            "stream": self._name,
            "run": self._run,
            "first": run.first,
            "rate": self.options.rate,
            "region": None,
            "endpoint_url": self.options.endpoint_url,
            "config": {
                "ordering": "per_shard" if ordered else "none",
                "record_ttl": 300.0,
                **self.options.producer,
            },
        }
        module = "integration.endtoend.producer_process"
        process = ChildProcess(module, name, settings, self._folder, self._environment)
        log = ProducerLog(process.log, run, self.recorded, self._flights)
        self._producers[name] = _Producer(process, log)
        self._producer_logs.append(log)
        return name

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something after `seconds`, while the run continues."""
        heapq.heappush(
            self._timed, (time.monotonic() + seconds, next(self._lines), lambda: (action(), None)[1])
        )

    def pick_worker(self, *, to_end: bool = True) -> str | None:
        """Return a worker that is neither frozen nor stopping, or None.

        It has the most leases, or one less. With `to_end`, the worker is about to end, so the spared one is excluded.
        """
        able = [w for w in self._workers.values() if w.process.is_able and w.log.has_started]
        if to_end and self.options.spared:
            able = [w for w in able if w.process.name != next(iter(self.recorded.workers))]
        most = max((w.log.leases for w in able), default=0)
        busy = [w for w in able if w.log.leases >= most - 1]
        return self._rng.choice(busy).process.name if busy else None

    def pick_producer(self) -> str | None:
        """Return a producer that can be killed, or None."""
        able = [p for p in self._producers.values() if p.process.is_able and p.log.put]
        if self.options.spared:
            able = [p for p in able if p.process.name != next(iter(self.recorded.producers))]
        return self._rng.choice(able).process.name if able else None

    def kill_worker(self, name: str | None = None, *, replace_after: float | None = 0.0) -> None:
        """SIGKILL a worker, and start another one after `replace_after` seconds (None: do not)."""
        name = name or self.pick_worker()
        if name is None:
            return
        worker = self._workers.pop(name)
        self.note("kill", f"killed {name}, which held {worker.log.leases} leases")
        worker.log.run.killed_at = time.time()
        worker.process.kill()
        self._read(worker)
        if replace_after is not None:
            self.after(replace_after, self.add_worker)

    def stop_worker(self, name: str | None = None, *, replace_after: float | None = None) -> None:
        """SIGTERM a worker, and start another one after `replace_after` seconds (None: do not)."""
        name = name or self.pick_worker()
        if name is None:
            return
        worker = self._workers[name]
        if worker.process.leaving:
            return
        self.note("stop", f"asked {name} to stop, which held {worker.log.leases} leases")
        worker.process.terminate()
        if replace_after is not None:
            self.after(replace_after, self.add_worker)

    def freeze_worker(self, seconds: float, name: str | None = None) -> None:
        """SIGSTOP a worker, and SIGCONT it after `seconds`."""
        name = name or self.pick_worker(to_end=False)
        if name is None:
            return
        worker = self._workers[name]
        text = f"froze {name} for {seconds:.1f} s, which held {worker.log.leases} leases"
        self.note("freeze", text, seconds)
        worker.process.freeze()
        self.after(seconds, lambda: self._thaw(worker))

    def _thaw(self, worker: _Worker) -> None:
        frozen_at = worker.process.frozen_at
        if frozen_at is not None and worker.process.status is None:
            worker.process.thaw()
            worker.log.run.pauses.append(Pause(frozen_at, time.time() + _EFFECT, "freeze"))

    def kill_producer(self, name: str | None = None, *, replace_after: float | None = 0.0) -> None:
        """SIGKILL a producer, and start another one of its kind after `replace_after` seconds (None: do not)."""
        name = name or self.pick_producer()
        if name is None:
            return
        producer = self._producers.pop(name)
        run = producer.log.run
        self.note("kill", f"killed {name}")
        run.killed_at = time.time()
        producer.process.kill()
        producer.log.read()
        if replace_after is not None:
            self.after(replace_after, lambda: self.add_producer(ordered=run.ordered))

    def stop_producer(self, name: str) -> None:
        """SIGTERM a producer, which then flushes and ends."""
        self._producers[name].process.terminate()

    def record_outage(self, begin: float, cause: str, effect: float) -> None:
        """Record that all processes' calls have failed since ``begin``, with effects for `effect` more seconds."""
        self.recorded.shared_pauses.append(Pause(begin, time.time() + effect, cause))

    # -- meanwhile ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        time.sleep(_TICK)
        now = time.monotonic()
        if self._turn and now - self._turn > STALL_SECONDS:
            # The machine or the server stalled, and all processes with it.
            stalled = now - self._turn
            self.recorded.shared_pauses.append(Pause(time.time() - stalled, time.time() + _EFFECT, "stall"))
        self._turn = now
        while self._timed and self._timed[0][0] <= now:
            heapq.heappop(self._timed)[2]()
        for producer in self._producers.values():
            producer.log.read()
        for worker in self._workers.values():
            self._read(worker)
        self._reap()
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            self._check_table()
        if now - self._sampled >= _SAMPLE_SECONDS:
            self._sampled = now
            self._sample()

    def _read(self, worker: _Worker) -> None:
        worker.log.read()
        self._processed |= worker.log.processed
        worker.log.processed.clear()

    def _reap(self) -> None:
        for name, worker in list(self._workers.items()):
            status = worker.process.status
            if status is None:
                continue
            del self._workers[name]
            worker.process.destroy()
            self._read(worker)
            if status or not worker.process.leaving:
                text = f"{name}, status {status}: {worker.log.error or worker.process.tail()}"
                self.violations.append(Violation("worker did not end in order", text))
        for name, producer in list(self._producers.items()):
            status = producer.process.status
            if status is None:
                continue
            del self._producers[name]
            producer.process.destroy()
            producer.log.read()
            if status or not producer.process.leaving:
                text = f"{name}, status {status}: {producer.process.tail()}"
                self.violations.append(Violation("producer did not end in order", text))

    def _check_table(self) -> None:
        try:
            rows = self._store.list(consistent=True)
        except ResourceNotFoundError:
            return  # No worker has created it yet.
        self.recorded.table_monitor.check(rows, time.time())

    def _sample(self) -> None:
        usage = {process.name: process.usage() for process in self._processes()}
        known = {name: one for name, one in usage.items() if one is not None}
        self.samples.append(
            Sample(
                at=time.time(),
                put=sum(log.put for log in self._producer_logs),
                acknowledged=len(self.recorded.puts),
                processed=len(self._processed),
                rss={name: one.rss for name, one in known.items()},
                threads={name: one.threads for name, one in known.items()},
            )
        )

    def _processes(self) -> list[ChildProcess]:
        return [one.process for one in (*self._producers.values(), *self._workers.values())]

    def note(self, kind: str, text: str, seconds: float = 0.0) -> None:
        """Record an action."""
        self.events.append(Event(time.time(), kind, text, seconds))
        self._say(f"{time.time() - self._began:6.1f} s  {text}")
