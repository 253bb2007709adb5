"""Runner of the demo: a stream, worker processes, a producer, a split, a crash, and the accounting."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from kinesis_sdk.admin import Connection
from kinesis_sdk.common.aws import call_with_retries, make_client
from kinesis_sdk.common.errors import (
    ConsumerError,
    KinesisSdkError,
    RecordFailedError,
    ResourceNotFoundError,
    without_userinfo,
)
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import PendingRecord, Producer, ProducerConfig
from kinesis_sdk.testing import start_server_process
from kinesis_sdk.testing.accounting.stored_copies import read_copies
from kinesis_sdk.testing.accounting.verify import Delivery, Put, take_over_times, verify
from kinesis_sdk.testing.demo.options import DemoOptions
from kinesis_sdk.testing.demo.progress import Progress
from kinesis_sdk.testing.demo.report import DemoReport, make_report
from kinesis_sdk.testing.demo.workers import WorkerProcess
from kinesis_sdk.testing.flights import load_flights, make_payload, read_number
from kinesis_sdk.testing.http.process import ServerProcess

if TYPE_CHECKING:
    from kinesis_sdk.testing.demo.effects import Effects

Console = Callable[[Connection, str, str, float], AbstractContextManager[str]]
"""Serves a console for a connection, an application, a stream and a failover time (seconds); the context's value is its URL."""

# Fractions of all puts after which something happens.
_LOSE_AT = (0.1, 0.3, 0.5)
_FREEZE_AT = 0.2
_SPLIT_AT = 0.4
_KILL_AT = 0.6

_LATE_STORE = 6.0
"""Seconds after which the request without a response is stored: after its repetition, which the producer sends after 4 s."""

# After these timeouts the demo counts as broken, so a slow or busy machine must not reach them.
_START_TIMEOUT = 180.0
_STOP_TIMEOUT = 120.0
_STALL_TIMEOUT = 120.0
"""If no new record is processed for this many seconds, the missing records count as lost."""
_RECORD_TTL = 300.0
"""Time-to-live of records in seconds. A slow machine may take longer than the default of 30 s to store them."""

# For endpoints that do not check signatures: the fake AWS, LocalStack.
_TEST_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class _Demo:
    def __init__(self, options: DemoOptions, progress: Progress, stack: ExitStack) -> None:
        self.options = options
        self.progress = progress
        self.stack = stack
        self.run = uuid.uuid4().hex[:8]
        self.own_stream = options.stream is None
        self.stream = StreamId.parse(options.stream or f"kinesis-sdk-demo-{self.run}")
        self.application = f"kinesis-sdk-demo-{self.run}"
        self.endpoint_url = options.endpoint_url
        self.own_server = False
        self.workers: list[WorkerProcess] = []
        self.deliveries: list[Delivery] = []
        self.seen: set[int] = set()
        self.futures: list[PendingRecord] = []
        self.put_times: list[float] = []
        self.splits = 0
        self.frozen = 0
        self.lost_responses = 0
        self.server: ServerProcess | None = None
        self.database: str | None = None
        self.environment = dict(os.environ)
        self.session: Any = None
        self.kinesis: Any = None

    # -------------------------------------------------------------- before

    def connect(self) -> None:
        """Start the fake AWS if no endpoint or stream is given, and create the clients."""
        if self.endpoint_url is None and self.own_stream:
            self.progress.event("starting a fake AWS in its own process")
            self.server = self.stack.enter_context(start_server_process())
            self.endpoint_url = self.server.endpoint_url
            self.own_server = True
            self.environment.update(_TEST_CREDENTIALS)
        profile = None if self.own_server else self.options.profile
        if profile is not None:
            # Keys in the workers' environment would take precedence over the profile.
            for name in _CREDENTIALS:
                self.environment.pop(name, None)
            self.environment["AWS_PROFILE"] = profile
        Connection(profile=profile).session  # noqa: B018 - raises if there is no such profile
        session = boto3.Session(region_name=self.options.region, profile_name=profile)
        if (
            self.endpoint_url is not None
            and profile is None
            and ("AWS_ACCESS_KEY_ID" in self.environment or session.get_credentials() is None)
        ):
            for name, value in _TEST_CREDENTIALS.items():
                self.environment.setdefault(name, value)
            session = boto3.Session(
                region_name=self.options.region or session.region_name or "us-east-1",
                aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
                aws_session_token=self.environment.get("AWS_SESSION_TOKEN"),
            )
        self.session = session
        self.kinesis = make_client("kinesis", session=session, endpoint_url=self.endpoint_url)

    def prepare_stream(self) -> None:
        """Create the stream, or check that the given stream exists, and wait until it is active."""
        if self.own_stream:
            self._call("CreateStream", StreamName=self.stream.name, ShardCount=self.options.shards)
            self.stack.callback(self._delete_stream)
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            response = self._call("DescribeStreamSummary", **self.stream.request)
            status = response["StreamDescriptionSummary"]["StreamStatus"]
            if status == "ACTIVE":
                break
            if time.monotonic() > deadline:
                raise KinesisSdkError(f"stream {self.stream} is still {status} after {_START_TIMEOUT:g} s")
            time.sleep(0.2)
        shards = len(list_shards(self.kinesis, self.stream, shard_filter={"Type": "AT_LATEST"}))
        where = without_userinfo(self.endpoint_url or f"AWS {self.session.region_name}")
        self.progress.event(f"stream {self.stream} with {shards} open shards at {where}")

    def serve_console(self, console: Console) -> None:
        """Serve a console while the demo runs; it is read-only, because the accounting could not explain a rewind."""
        connection = Connection(
            region=self.session.region_name,
            endpoint_url=self.endpoint_url,
            clients={
                service: make_client(service, session=self.session, endpoint_url=self.endpoint_url)
                for service in ("kinesis", "dynamodb")
            },
        )
        url = self.stack.enter_context(
            console(connection, self.application, str(self.stream), self.options.failover_time)
        )
        self.progress.event(f"open {url} to watch")

    def start_workers(self, folder: Path) -> None:
        """Start the worker processes and wait until all leases are held, if possible at least one by each worker."""
        if self.options.exactly_once:
            self.database = f"sqlite:///{folder / 'effects.db'}"
            self._effects().create()
        settings = {
            "database": self.database,
            "stream": str(self.stream),
            "application_name": self.application,
            "run": self.run,
            "initial_position": "TRIM_HORIZON" if self.own_stream else "LATEST",
            "failover_time": self.options.failover_time,
            "stop_timeout": _STOP_TIMEOUT,
            "region": self.session.region_name,
            "endpoint_url": self.endpoint_url,
        }
        self.stack.callback(self._delete_table)
        for index in range(self.options.workers):
            worker = WorkerProcess(f"worker-{index + 1}", settings, folder, self.environment)
            self.workers.append(worker)
            self.stack.callback(worker.stop, 5.0)
        shards = len(list_shards(self.kinesis, self.stream, shard_filter={"Type": "AT_LATEST"}))
        deadline = time.monotonic() + _START_TIMEOUT
        while sum(w.leases for w in self.workers) < shards or (
            shards >= len(self.workers) and any(w.leases == 0 for w in self.workers)
        ):
            self.read_logs()
            if time.monotonic() > deadline:
                raise ConsumerError(f"the workers did not get all leases within {_START_TIMEOUT:g} s")
            time.sleep(0.05)
        held = ", ".join(f"{w.name} {w.leases}" for w in self.workers)
        self.progress.event(f"{len(self.workers)} worker processes hold the leases: {held}")

    # -------------------------------------------------------------- the work

    def put_everything(self, producer: Producer) -> float:
        """Put all records, spread evenly over the duration, with the events of `_plan` in between; return the actual duration in seconds."""
        flights = load_flights()
        total = len(flights) * self.options.repeat
        start = time.monotonic()
        plan = self._plan(total)
        number = 0
        logs_read_at = start
        while number < total:
            now = time.monotonic()
            due = total
            if self.options.duration:
                due = min(total, int((now - start) / self.options.duration * total) + 1)
            for number in range(number, min(due, number + 1000)):  # noqa: B020 - continues after the last number
                flight = flights[number % len(flights)]
                self.put_times.append(time.time())
                self.futures.append(
                    producer.put(self.stream, flight.origin, make_payload(self.run, number, flight))
                )
            number = len(self.futures)
            while plan and number >= plan[0][0]:
                plan.pop(0)[1]()
            self._let_go_on()
            if now - logs_read_at > 0.1:
                logs_read_at = now
                self.read_logs()
                self._count(total, producer)
            if number >= due:
                time.sleep(0.002)
        producer.flush()
        self._count(total, producer)
        return time.monotonic() - start

    def _plan(self, total: int) -> list[tuple[int, Callable[[], None]]]:
        """Return the events of the run in order, each with the number of puts after which it happens."""
        options = self.options
        plan: list[tuple[float, Callable[[], None], bool]] = [
            *((part, self._lose_response, options.lose_responses) for part in _LOSE_AT[:-1]),
            (_LOSE_AT[-1], self._store_late, options.lose_responses),
            (_FREEZE_AT, self._freeze, options.freeze_worker),
            (_SPLIT_AT, self._split, options.split_shard),
            (_KILL_AT, self._kill, options.kill_worker),
        ]
        wanted = [(int(total * part), action) for part, action, is_wanted in plan if is_wanted]
        return sorted(wanted, key=lambda one: one[0])

    def wait_for_workers(self, producer: Producer) -> None:
        """Wait until every acknowledged record is processed, or until no record was processed for `_STALL_TIMEOUT` seconds."""
        acknowledged = producer.stats().user_records_stored
        progressed_at = time.monotonic()
        while len(self.seen) < acknowledged and time.monotonic() - progressed_at < _STALL_TIMEOUT:
            before = len(self.seen)
            time.sleep(0.05)
            self._let_go_on()
            self.read_logs()
            if len(self.seen) > before:
                progressed_at = time.monotonic()
            self._count(len(self.futures), producer)

    def read_logs(self) -> None:
        """Read the lines that the workers have logged since the last call."""
        for worker in self.workers:
            for delivery in worker.read():
                self.deliveries.append(delivery)
                self.seen.add(delivery.number)

    def _count(self, total: int, producer: Producer) -> None:
        self.progress.counts(
            total=total,
            put=len(self.futures),
            stored=producer.stats().user_records_stored,
            processed=len(self.seen),
        )

    def _split(self) -> None:
        shards = list_shards(self.kinesis, self.stream, shard_filter={"Type": "AT_LATEST"})
        widest: Shard = max(shards, key=lambda s: s.hash_key_range.end - s.hash_key_range.start)
        middle = (widest.hash_key_range.start + widest.hash_key_range.end) // 2 + 1
        self._call(
            "SplitShard", **self.stream.request, ShardToSplit=widest.shard_id, NewStartingHashKey=str(middle)
        )
        self.splits += 1
        self.progress.event(f"split {widest.shard_id}")

    def _lose_response(self) -> None:
        self._inject({"kind": "timeout_after_storing"})
        self.progress.event("the response of the next PutRecords call is lost, and its records are stored")

    def _store_late(self) -> None:
        self._inject({"kind": "late_store", "seconds": _LATE_STORE})
        self.progress.event(
            f"the response of the next PutRecords call is lost, and its records are stored {_LATE_STORE:g} s later, after their repetition"
        )

    def _inject(self, fault: Mapping[str, Any]) -> None:
        assert self.server is not None
        self.server.admin(
            "faults", {**fault, "operation": "PutRecords", "stream": self.stream.name, "count": 1}
        )
        self.lost_responses += 1

    def _freeze(self) -> None:
        victim = max(self.workers, key=lambda worker: worker.leases)
        seconds = self.options.failover_time + 2.0
        victim.freeze(seconds)
        self.frozen += 1
        self.progress.event(
            f"froze {victim.name} (SIGSTOP), which held {victim.leases} leases, for {seconds:g} s: longer than they last"
        )

    def _let_go_on(self) -> None:
        for worker in self.workers:
            if worker.go_on():
                self.progress.event(f"{worker.name} goes on (SIGCONT)")

    def _kill(self) -> None:
        victim = max(
            (worker for worker in self.workers if worker.frozen_until is None),
            key=lambda worker: worker.leases,
        )
        held = victim.leases
        victim.kill()
        self.progress.event(f"killed {victim.name} (SIGKILL), which held {held} leases")

    # -------------------------------------------------------------- after

    def stop_workers(self) -> bool:
        """Stop the workers and read the rest of their logs; return whether all of them stopped cleanly."""
        stopped = [worker.stop(_STOP_TIMEOUT + 10.0) for worker in self.workers]
        for worker in self.workers:
            for delivery in worker.read_rest():
                self.deliveries.append(delivery)
                self.seen.add(delivery.number)
        return all(stopped)

    def _effects(self) -> Effects:
        from kinesis_sdk.consumer.sql import open_engine
        from kinesis_sdk.testing.demo.effects import Effects

        assert self.database is not None
        return Effects(open_engine("database", self.database))

    def results(self) -> list[Delivery]:
        """Return the effects that workers committed; without a database, the records that they processed."""
        return self.deliveries if self.database is None else self._effects().read()

    def stored_again(self) -> int | None:
        """Return the number of copies in the stream beyond the first of each record; None for the user's own stream."""
        if not self.own_stream:
            return None
        self.progress.event("reading the whole stream to count the copies in it")
        run = self.run.encode()
        copies = read_copies(_Retrying(self.kinesis), self.stream.name)
        numbers = [number for copy in copies if (number := read_number(run, copy.data)) is not None]
        return len(numbers) - len(set(numbers))

    def puts(self) -> list[Put]:
        """Return the producer's result of every record."""
        return [_as_put(future, at) for future, at in zip(self.futures, self.put_times, strict=True)]

    def _call(self, operation: str, **parameters: Any) -> Any:
        method = getattr(self.kinesis, "".join("_" + c.lower() if c.isupper() else c for c in operation)[1:])
        return call_with_retries(lambda: method(**parameters), operation=operation, client=self.kinesis)

    def _delete_stream(self) -> None:
        self._call("DeleteStream", StreamName=self.stream.name)

    def _delete_table(self) -> None:
        client = make_client("dynamodb", session=self.session, endpoint_url=self.endpoint_url)
        try:
            call_with_retries(
                lambda: client.delete_table(TableName=self.application),
                operation="DeleteTable",
                client=client,
            )
        except ResourceNotFoundError:
            return  # No worker got far enough to create the table.


class _Retrying:
    """A client that retries calls while the service throttles them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        operation = "".join(part.capitalize() for part in name.split("_"))
        return lambda **request: call_with_retries(
            lambda: method(**request), operation=operation, client=self._client
        )


def _as_put(future: PendingRecord, put_at: float) -> Put:
    try:
        result = future.result(0)
    except RecordFailedError as error:
        return Put(future.partition_key, put_at, None, "", len(error.attempts), 0.0)
    return Put(
        future.partition_key,
        put_at,
        (int(result.sequence_number), result.sub_sequence_number),
        result.shard_id,
        len(result.attempts),
        sum(attempt.delay + attempt.duration for attempt in result.attempts),
    )


def run_demo(options: DemoOptions, progress: Progress, console: Console | None = None) -> DemoReport:
    """Run the demo.

    Args:
        options: Its options.
        progress: Shows the progress of the run.
        console: Serves a console while the demo runs; None serves no console.

    Raises:
        KinesisSdkError: If the demo cannot run, for example because the endpoint does not respond, credentials are missing, or a worker
            ended.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kinesis-sdk-demo-")))
        demo = _Demo(options, progress, stack)
        demo.connect()
        demo.prepare_stream()
        demo.start_workers(folder)
        if console is not None:
            demo.serve_console(console)
        config = ProducerConfig(record_ttl=_RECORD_TTL, idempotent=options.exactly_once)
        with Producer(config, session=demo.session, endpoint_url=demo.endpoint_url) as producer:
            put_seconds = demo.put_everything(producer)
            demo.wait_for_workers(producer)
            stats = producer.stats()
        clean = demo.stop_workers()
        killed: Mapping[str, float] = {w.name: w.killed_at for w in demo.workers if w.killed_at is not None}
        lost_leases = {(w.name, number) for w in demo.workers for number in w.lost_leases}
        puts = demo.puts()
        return make_report(
            stream=str(demo.stream),
            result=verify(puts, demo.results(), killed=killed, lost_leases=lost_leases),
            exactly_once=options.exactly_once,
            deliveries=len(demo.deliveries),
            stored_again=demo.stored_again(),
            lost_responses=demo.lost_responses,
            workers_frozen=demo.frozen,
            stats=stats,
            acknowledge_times=[put.acknowledged_after for put in puts if put.position is not None],
            put_seconds=put_seconds,
            total_seconds=time.monotonic() - began,
            splits=demo.splits,
            workers_killed=len(killed),
            take_over_seconds=take_over_times(demo.deliveries, killed=killed),
            leases_lost=len(lost_leases),
            longest_stall=max(w.longest_stall for w in demo.workers if not w.was_frozen),
            failover_time=options.failover_time,
            clean_stop=clean,
        )
