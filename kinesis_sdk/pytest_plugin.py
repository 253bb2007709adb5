"""Fixtures for pytest: a fake AWS, a stream, and workers that a test drives step by step in virtual time.

    def test_billing(kinesis_stream, kinesis_worker):
        kinesis_stream.put("customer-7", b"...")
        kinesis_worker(handle).run()
        assert total == 1

pytest finds them by itself once the package is installed. Nothing is imported before a fixture is used. docs/testing.md is the guide.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kinesis_sdk.common.records import UserRecord
    from kinesis_sdk.consumer import ConsumerConfig, Handler
    from kinesis_sdk.testing import FakeAws

_LONGEST_RUN = 3600.0
"""Virtual seconds after which a run that does not end is an error."""


class TestStream:
    """A stream of the fake AWS.

    Args:
        aws: The fake account.
        name: Name of the stream; it is created.
        shards: Number of shards.

    Attributes:
        name: Name of the stream.
        client: Client of the fake, shaped like boto3's Kinesis client.
    """

    __test__ = False  # not a test class, although its name begins with "Test"

    def __init__(self, aws: FakeAws, name: str, shards: int = 1) -> None:
        self.aws = aws
        self.name = name
        self.client: Any = aws.client("kinesis")
        self.client.create_stream(StreamName=name, ShardCount=shards)

    def put(self, partition_key: str, *payloads: bytes) -> None:
        """Put one Kinesis record for each payload."""
        for data in payloads:
            self.client.put_record(StreamName=self.name, PartitionKey=partition_key, Data=data)

    def put_aggregate(self, records: Iterable[tuple[str, bytes]]) -> None:
        """Put user records as one aggregate, as the KPL does.

        Args:
            records: Partition key and payload of each. All of them go to the shard of the first key.
        """
        from kinesis_sdk.common.aggregate_writer import Aggregate
        from kinesis_sdk.common.hashkeys import hash_partition_key

        aggregate = Aggregate(2**30, 2**30)
        for key, data in records:
            aggregate.try_append(key, None, data, hash_partition_key(key))
        self.client.put_record(
            StreamName=self.name,
            PartitionKey=aggregate.partition_key,
            ExplicitHashKey=aggregate.explicit_hash_key,
            Data=aggregate.encode(),
        )

    @property
    def records(self) -> list[UserRecord]:
        """All user records in the stream, shard by shard, in the order of each shard; aggregates are opened."""
        from kinesis_sdk.common.aggregate_reader import deaggregate
        from kinesis_sdk.common.records import KinesisRecord

        found: list[UserRecord] = []
        for shard in self.client.list_shards(StreamName=self.name)["Shards"]:
            iterator = self.client.get_shard_iterator(
                StreamName=self.name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while iterator:
                page = self.client.get_records(ShardIterator=iterator)
                found.extend(deaggregate(map(KinesisRecord.from_api, page["Records"])))
                if not page["Records"] and page["MillisBehindLatest"] == 0:
                    break
                iterator = page.get("NextShardIterator")
        return found

    def assert_put(self, *expected: tuple[str, bytes]) -> None:
        """Assert that the stream has exactly these records: partition key and payload, each as many times as it is listed.

        Order counts among the records of one partition key.
        """
        by_key: dict[str, list[bytes]] = {}
        for key, data in expected:
            by_key.setdefault(key, []).append(data)
        found: dict[str, list[bytes]] = {}
        for record in self.records:
            found.setdefault(record.partition_key, []).append(record.data)
        assert found == by_key


class SteppedWorker:
    """A worker without threads, driven by a test in virtual time. It has a lease table in memory, or shares one.

    Args:
        stream: The stream.
        handler: As for `kinesis_sdk.Worker`.
        config: As for `kinesis_sdk.Worker`; None starts at the oldest record.
        worker_id: Id of the worker.
        leases: Lease store.
        sink: As for `kinesis_sdk.Worker`.
        interceptors: As for `kinesis_sdk.Worker`.
        metrics: As for `kinesis_sdk.Worker`.

    Attributes:
        leases: The lease store; pass it to another worker that is to continue at the checkpoints.
    """

    def __init__(
        self,
        stream: TestStream,
        handler: Handler,
        config: ConsumerConfig | None = None,
        *,
        worker_id: str = "worker-1",
        leases: Any = None,
        sink: Any = None,
        interceptors: Sequence[Any] = (),
        metrics: Any = None,
    ) -> None:
        self._stream = stream
        self._handler = handler
        self._config = config
        self._worker_id = worker_id
        self.leases: Any = leases
        self._sink = sink
        self._interceptors = interceptors
        self._metrics = metrics
        self._engine: Any = None
        self._due: float | None = None
        self._clock: Any = stream.aws.clock

    def _start(self, **more: Any) -> None:
        from random import Random

        from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore
        from kinesis_sdk.consumer.engine import stepped_engine

        if self.leases is None:
            self.leases = InMemoryLeaseStore()
        self._engine = stepped_engine(
            self._stream.name,
            self._handler,
            config=self._config or ConsumerConfig(initial_position="TRIM_HORIZON"),
            lease_store=self.leases,
            kinesis=self._stream.client,
            clock=self._clock,
            sleep=self._clock.advance,
            worker_id=self._worker_id,
            rng=Random(0),
            sink=self._sink,
            interceptors=self._interceptors,
            metrics=self._metrics,
            **more,
        )
        self._engine.start()
        self._due = self._clock.monotonic()

    def step(self) -> bool:
        """Advance the clock to the next moment at which the worker has something to do, and do it.

        Returns:
            Whether the worker still runs.

        Raises:
            KinesisSdkError: If an error stopped the worker, for example `HandlerError` with ``on_handler_error="stop"``.
        """
        if self._engine is None:
            self._start()
        if self._due is None:
            return False
        self._clock.advance_to(self._due)
        self._due = self._engine.tick(self._clock.monotonic())
        if self._engine.error is not None:
            raise self._engine.error
        return self._due is not None

    def run_for(self, seconds: float) -> None:
        """Let the worker run for some virtual seconds.

        Raises:
            KinesisSdkError: As `step`.
        """
        ends = self._clock.monotonic() + seconds
        if self._engine is None:
            self._start()
        while self._due is not None and self._due <= ends:
            self.step()
        self._clock.advance_to(ends)

    def run(self) -> None:
        """Let the worker process everything that is in the stream now, checkpoint it, and end.

        Raises:
            KinesisSdkError: As `step`.
            TimeoutError: If the worker has not ended after a virtual hour, for example because the handler always raises.
        """
        if self._engine is not None:
            raise RuntimeError(
                "the worker is already running; run() is only for a worker that was not stepped"
            )
        self._start(until="now")
        ends = self._clock.monotonic() + _LONGEST_RUN
        while self.step():
            if self._clock.monotonic() > ends:
                raise TimeoutError("the worker did not process everything within a virtual hour")

    def stop(self) -> None:
        """Stop cleanly: the handler may checkpoint, and leases are released."""
        if self._engine is not None:
            self._engine.request_stop()
            self._due = self._clock.monotonic()
            while self.step():
                pass


@pytest.fixture
def kinesis_aws() -> FakeAws:
    """Provide a fake AWS account on a virtual clock (``kinesis_aws.clock``), which starts now, without the service's limits."""
    from kinesis_sdk.testing import FakeAws, VirtualClock

    # A producer compares the account's time with this machine's. If they differ, it considers spooled records too old to be put
    # again with their identities.
    return FakeAws(clock=VirtualClock(time.time()), throttle=False)


@pytest.fixture
def kinesis_stream(kinesis_aws: FakeAws) -> TestStream:
    """Provide a stream with one shard in the fake account: see `TestStream`."""
    return TestStream(kinesis_aws, "test-stream")


@pytest.fixture
def kinesis_worker(kinesis_stream: TestStream) -> Iterator[Any]:
    """Provide a function that makes a `SteppedWorker` for a handler, on ``kinesis_stream``; workers end with the test."""
    made: list[SteppedWorker] = []

    def make(handler: Handler, config: ConsumerConfig | None = None, **more: Any) -> SteppedWorker:
        made.append(SteppedWorker(kinesis_stream, handler, config, **more))
        return made[-1]

    yield make
    for worker in made:
        if worker._engine is not None:
            worker._engine.abort()
