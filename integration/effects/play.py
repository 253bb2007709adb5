"""One run: a stream, producers, workers that write effects, and faults. A relay may stand between the producers and the stream."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

from integration.effects.account import Outcome, Pace, due, judge
from integration.effects.services import Services, serve
from integration.effects.stores import Store, open_store
from integration.endtoend.processes import ChildProcess
from integration.endtoend.stream import StreamControl
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.testing.accounting.stored_copies import read_copies

PRODUCERS = ("idempotent", "plain", "mixed")
_SETTLE = 3
"""Wait after the last missing effect, in failover times: effects could still be repeated in it."""

_STUCK = 180.0
"""A run fails after this many seconds without a new effect."""

_BACKLOG = 50_000
_LATEST_STORE = 6.0
"""Seconds after the last put in which a failed request can still be stored."""

_MOST_FOR_A_HIT = 20_000
"""Maximum number of records beyond the plan's, put until a fault has hit something."""

_SHARDS = 4
_EFFECTS, _RELAY = "integration.effects.worker", "integration.effects.relay_worker"
_WORKERS = (_EFFECTS,) * 4
_WORKERS_BEHIND_A_RELAY = (_RELAY,) * 3 + (_EFFECTS,) * 2
_MOST_SHARDS = 6
_PROGRESS_SECONDS = 10.0


class Plan(NamedTuple):
    """Parameters of a run.

    Attributes:
        endpoint: See `serve`.
        store: One of `STORES`.
        puts: Number of records to put.
        rate: Maximum number of records per second.
        seed: Seed of the faults.
        transactions: Whether workers have a sink; with ``relay``, whether its outputs have ids, and workers always have a sink.
        producers: One of `PRODUCERS`. With ``mixed``, the idempotent one puts even numbers and the plain one odd numbers.
        fault_interval: Mean seconds between two faults.
        failover: Failover time of the workers, seconds.
        idle: Seconds between two reads of a shard.
        pause: Maximum seconds between the effects of a batch and its commit or checkpoint.
        relay: Whether producers put into another stream, which workers with a `Relay` copy into the one that is judged.
    """

    endpoint: str
    store: str
    puts: int
    rate: float
    seed: int
    transactions: bool
    producers: str
    fault_interval: float = 2.5
    failover: float = 3.0
    idle: float = 0.2
    pause: float = 0.02
    relay: bool = False


class Run:
    """One run.

    Args:
        plan: Its parameters.
        services: Its servers.
        store: Its store, as the run itself sees it.
        folder: For the output of workers.
        report: Called every ten seconds with a line about the progress.
    """

    def __init__(
        self, plan: Plan, services: Services, store: Store, folder: Path, report: Callable[[str], None]
    ) -> None:
        self._plan, self._services, self._store, self._folder, self._report = (
            plan,
            services,
            store,
            folder,
            report,
        )
        self._stream = f"orders-{plan.seed}-{os.getpid()}-{time.time_ns() % 1_000_000}"
        self._rng = random.Random(plan.seed)
        # It reads beside the workers, and waits where they have used up the five reads a second.
        retries: Any = {"mode": "standard", "total_max_attempts": 10}
        self._kinesis = boto3.client("kinesis", endpoint_url=services.aws_url, config=Config(retries=retries))
        self._source = f"in-{self._stream}" if plan.relay else self._stream
        self._controls = [
            StreamControl(self._kinesis, StreamId.parse(name), self._rng)
            for name in dict.fromkeys((self._source, self._stream))
        ]
        self._faults: Counter[str] = Counter()
        self._workers: list[ChildProcess] = []
        self._frozen: list[tuple[float, ChildProcess]] = []
        self._started = 0
        self._began = self._told = self._next_fault = 0.0
        self._put = self._effects = 0
        self._looked = 0.0
        self._was_hit = False

    def play(self) -> Outcome:
        """Put the records, inject the faults, wait for the effects, and compare them with the stream."""
        self._began = self._told = time.monotonic()
        self._store.prepare()
        for control in self._controls:
            control.create(_SHARDS)
        for name in (self._source, self._stream):
            self._kinesis.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})
        self._services.begin_faults()
        try:
            for module in _WORKERS_BEHIND_A_RELAY if self._plan.relay else _WORKERS:
                self._add(module)
            acknowledged = self._produce()
            if self._plan.relay:
                self._pass_on()
            self._faults += self._services.faults()
            self._services.end_faults()
            for _, worker in self._frozen:
                worker.thaw()
            time.sleep(_LATEST_STORE)
            wanted = due(self._stream, read_copies(self._kinesis, self._stream))
            self._drain(len(wanted.ids))
        finally:
            for worker in self._workers:
                worker.destroy()
        seconds = time.monotonic() - self._began
        verdict = judge(wanted, self._store.effects_by_record(wanted.ids), acknowledged)
        return Outcome(
            self._plan.store,
            self._plan.transactions,
            self._plan.producers,
            self._put,
            wanted.copies,
            verdict.lost,
            verdict.twice,
            seconds,
            self._faults,
            self._plan.relay,
        )

    # -- producing ----------------------------------------------------------------------------------------------

    def _producer(self, *, idempotent: bool) -> Producer:
        # Small aggregates, so that batches are short and many transactions can be hit by a kill.
        config = ProducerConfig(idempotent=idempotent, aggregation_max_count=100, record_ttl=300.0)
        return Producer(config, region_name="us-east-1", endpoint_url=self._services.worker_aws_url)

    def _produce(self) -> Iterable[int]:
        kinds = {"idempotent": [True], "plain": [False], "mixed": [True, False]}[self._plan.producers]
        futures: list[PendingRecord] = []
        start = time.monotonic()
        pace = Pace(self._plan.puts, self._plan.rate, _BACKLOG, start)
        self._next_fault = start + self._plan.fault_interval
        with ExitStack() as stack:
            producers = [stack.enter_context(self._producer(idempotent=kind)) for kind in kinds]
            # What a fault hits depends on the machine, so continue until one has done what the run is about: see `_look`.
            most = self._plan.puts + _MOST_FOR_A_HIT
            while self._put < self._plan.puts or (self._put < most and not self._was_hit):
                self._look()
                until = pace.allowed(time.monotonic(), self._effects)
                if self._put >= self._plan.puts:
                    until = self._put + 1
                for number in range(self._put, until):
                    text = str(number)
                    futures.append(producers[number % len(producers)].put(self._source, text, text.encode()))
                self._put = max(self._put, until)
                self._disturb(time.monotonic())
                time.sleep(0.02)
            for producer in producers:
                producer.flush()
        self._tell_attempts(futures)
        return [number for number, future in enumerate(futures) if future.exception(0) is None]

    def _tell_attempts(self, futures: Iterable[PendingRecord]) -> None:
        codes: Counter[str] = Counter()
        for future in futures:
            error = future.exception(0)
            attempts = future.result(0).attempts if error is None else getattr(error, "attempts", ())
            codes.update(attempt.code for attempt in attempts if attempt.code)
            codes["failed for good"] += error is not None
        why = ", ".join(f"{number:,} × {code}" for code, number in codes.most_common() if number)
        self._report(f"attempts of records that failed: {why or 'none'}")

    # -- workers ------------------------------------------------------------------------------------------------

    def _add(self, module: str) -> None:
        self._started += 1
        plan, with_relay = self._plan, self._plan.relay
        settings = {
            "stream": self._stream,
            "source": self._source,
            "store": self._services.worker_store,
            "transactions": plan.transactions or (with_relay and module == _EFFECTS),
            "endpoint_url": self._services.worker_aws_url,
            "worker_id": f"w{self._started}",
            "failover": plan.failover,
            "max_records": 20,
            "pause": plan.pause,
            "idle": plan.idle,
        }
        name = f"{plan.store}-{'sink' if plan.transactions else 'plain'}-w{self._started}"
        self._workers.append(ChildProcess(module, name, settings, self._folder, os.environ))

    def _disturb(self, now: float) -> None:
        # A fault before the first effect would only hit starting workers.
        if self._effects and now >= self._next_fault:
            self._next_fault = now + self._plan.fault_interval * self._rng.uniform(0.4, 1.6)
            self._fault(now)
        for entry in [entry for entry in self._frozen if entry[0] <= now]:
            self._frozen.remove(entry)
            entry[1].thaw()

    def _fault(self, now: float) -> None:
        able = [worker for worker in self._workers if worker.is_able]
        chance = self._rng.random()
        # The first fault is a kill, so that even the shortest run has one.
        if (chance < 0.45 or not self._faults["kills"]) and len(able) > 1:
            self._faults["kills"] += 1
            worker = self._rng.choice(able)
            worker.kill()
            self._workers.remove(worker)
            self._add(worker.module)
        elif chance < 0.7 and len(able) > 1:
            self._faults["freezes"] += 1
            worker = self._rng.choice(able)
            worker.freeze()
            self._frozen.append((now + self._rng.uniform(1, 4 * self._plan.failover), worker))
        elif chance < 0.9:
            self._reshard()
        else:
            self._faults["cuts"] += 1
            self._services.cut()
            self._store.disturb()

    def _reshard(self) -> None:
        control = self._rng.choice(self._controls)
        if control.is_resharding:
            return
        if len(control.shards()) >= _MOST_SHARDS:
            self._faults["merges"] += 1
            control.merge()
        else:
            self._faults["splits"] += 1
            control.split()

    # -- waiting ------------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Wait until the relay has put an output for each record of its input, and longer, then end it.

        So nothing is put any more when the stream is judged, not even by a worker that was frozen.
        """
        seen, progress_at = -1, time.monotonic()
        while missing := len(self._numbers(self._source) - self._numbers(self._stream)):
            self._look()
            self._disturb(time.monotonic())
            if missing != seen:
                seen, progress_at = missing, time.monotonic()
            elif time.monotonic() - progress_at > _STUCK:
                self._report(f"the relay has put nothing for {_STUCK:g} s, and {missing:,} records are due")
                break
            time.sleep(1)
        for _, worker in self._frozen:
            worker.thaw()
        self._frozen.clear()
        time.sleep(_SETTLE * self._plan.failover)
        for worker in [worker for worker in self._workers if worker.module == _RELAY]:
            self._workers.remove(worker)
            worker.destroy()

    def _numbers(self, stream: str) -> frozenset[int]:
        return due(stream, read_copies(self._kinesis, stream)).numbers

    def _look(self) -> None:
        """Read the workers' progress, in at most a tenth of the time, and report it now and then."""
        now = time.monotonic()
        if now >= self._looked:
            self._effects = self._store.effects()
            if self._put >= self._plan.puts and not self._was_hit:
                self._was_hit = self._faults["kills"] > 0 and (
                    self._services.faults()["answers lost"] > 0
                    if self._plan.transactions
                    else self._effects > self._store.records()
                )
            after = time.monotonic()
            self._looked = after + max(1.0, 10 * (after - now))
        if now - self._told >= _PROGRESS_SECONDS:
            self._told = now
            faults = ", ".join(f"{number} {name}" for name, number in sorted(self._faults.items()))
            self._report(
                f"{now - self._began:>5.0f} s  {self._put:>10,} put  {self._effects:>10,} effects  {faults}"
            )
        for worker in self._workers:
            if worker.status is not None:
                raise RuntimeError(f"{worker.name} ended by itself:\n{worker.tail()}")

    def _drain(self, wanted: int) -> None:
        """Wait until `wanted` records have taken effect, and longer, because effects could still be repeated."""
        seen, progress_at = -1, time.monotonic()
        while True:
            self._look()
            if self._effects >= wanted and self._store.records() >= wanted:
                break
            if self._effects != seen:
                seen, progress_at = self._effects, time.monotonic()
            elif time.monotonic() - progress_at > _STUCK:
                self._report(f"no new effect for {_STUCK:g} s: {wanted:,} records are due")
                return
            time.sleep(1)
        time.sleep(_SETTLE * self._plan.failover)


def play(plan: Plan, folder: Path, report: Callable[[str], None] = lambda _: None) -> Outcome:
    """Play one run with its own servers and stream.

    Args:
        plan: Its parameters.
        folder: For the servers' and the workers' files.
        report: Called with lines about the progress.

    Raises:
        CannotInstallError: If LocalStack or DynamoDB Local cannot be installed on this machine.
        NoPostgresError: If PostgreSQL is missing.
        RuntimeError: If a worker ended by itself.
    """
    with ExitStack() as stack:
        services = stack.enter_context(serve(plan.endpoint, plan.store, folder=folder, seed=plan.seed))
        if services.missing:
            report(f"faults that these servers cannot have: {', '.join(services.missing)}")
        # It only counts, and does not change effects.
        store = open_store(services.store, attempts=10, by_number=plan.relay)
        stack.callback(store.close)
        return Run(plan, services, store, folder, report).play()
