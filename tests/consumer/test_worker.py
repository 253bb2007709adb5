"""The shell: start errors, the public names, stopping; with the fake in process, no sockets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from kinesis_sdk.common.errors import (
    AwsConfigError,
    ConfigError,
    ConsumerError,
    EndpointUnreachableError,
    HandlerError,
    PermanentAwsError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import (
    ConsumerConfig,
    DynamoDBLeaseStore,
    InMemoryLeaseStore,
    Lease,
    Worker,
)
from kinesis_sdk.testing import Fault
from tests import HANG
from tests.consumer.worker_scenario import ScanNoticed, Scenario


def test_importing_the_consumer_imports_no_boto3():
    code = "import sys, kinesis_sdk.consumer; print([m for m in sys.modules if m.startswith('boto')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_consume_and_stop():
    scenario = Scenario()
    scenario.put(*[b"%d" % n for n in range(20)])
    worker = scenario.worker()
    assert not worker.health().running
    with worker:
        scenario.wait(20)
        health = worker.health()
        assert health.running
        assert health.worker_id == worker.worker_id
        assert set(health.leases) <= {"shardId-000000000000", "shardId-000000000001"}
        assert health.error is None
    assert sorted(scenario.got, key=int) == [b"%d" % n for n in range(20)]
    table = scenario.aws.client("dynamodb").scan(TableName="billing")["Items"]
    assert len(table) == 2
    for item in table:
        assert "leaseOwner" not in item
        assert item["checkpoint"]["S"].isdigit()
    assert not worker.health().running
    assert worker.health().records_delivered == 20


def test_stop_is_idempotent_and_a_worker_starts_once():
    scenario = Scenario()
    worker = scenario.worker(lease_store=InMemoryLeaseStore())
    worker.start()
    assert worker.stop(20)
    assert worker.stop()
    with pytest.raises(ConfigError, match="not started before"):
        worker.start()
    assert scenario.worker().stop(), "never started"


def test_a_stopping_policy_ends_run_with_the_handlers_error():
    scenario = Scenario()
    scenario.put(b"0")

    def handle(batch):
        raise ValueError("poison")

    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error="stop")
    worker = scenario.worker(handle, config=config)
    with pytest.raises(HandlerError, match="poison"):
        worker.run()
    assert isinstance(worker.health().error, HandlerError)
    for item in scenario.aws.client("dynamodb").scan(TableName="billing")["Items"]:
        assert "leaseOwner" not in item, "a failing worker still gives its leases back"


def test_a_fatal_error_in_the_background_ends_run():
    scenario = Scenario()
    worker = scenario.worker()
    timer = threading.Timer(
        0.5,
        lambda: scenario.aws.faults.add(
            Fault(kind="error", operation="GetRecords", code="AccessDeniedException", status=400)
        ),
    )
    timer.start()
    with pytest.raises(PermanentAwsError, match="AccessDeniedException"):
        worker.run()
    timer.join()


def test_a_handler_that_exits_is_not_swallowed():
    scenario = Scenario()
    scenario.put(b"0")

    def handle(batch):
        raise SystemExit(7)

    with pytest.raises(SystemExit):
        scenario.worker(handle).run()


@pytest.mark.parametrize("form", ["run", "with", "async with"])
def test_a_stop_takes_at_most_the_stop_timeout(form, caplog):
    scenario = Scenario()
    scenario.put(b"0")
    release = threading.Event()

    def handle(batch):
        worker.request_stop()
        release.wait(HANG)

    async def embed():
        async with worker as entered:
            assert entered is worker
            await asyncio.to_thread(worker.wait, 0.1)

    worker = scenario.worker(handle, stop_timeout=0.2)
    try:
        if form == "run":
            worker.run()
            assert "within 0.2 s" in caplog.text
        elif form == "with":
            with worker:
                worker.wait(0.1)
        else:
            asyncio.run(embed())
        assert not release.is_set()
    finally:
        release.set()
    with pytest.raises(ConfigError, match="stop_timeout=-1"):
        scenario.worker(stop_timeout=-1)


def test_an_embedded_worker_raises_what_ended_it():
    scenario = Scenario()

    async def embed():
        async with Worker(
            "missing",
            application_name="billing",
            handler=scenario.handle,
            kinesis_client=scenario.kinesis,
            lease_store=InMemoryLeaseStore(),
        ):
            raise AssertionError("not reached")

    with pytest.raises(ResourceNotFoundError, match="missing"):
        asyncio.run(embed())


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_a_callback_can_request_a_stop_and_cannot_wait_for_it(form):
    scenario = Scenario()
    scenario.put(b"0")
    refused = []

    def handle(batch):
        try:
            worker.stop()
        except ConsumerError as error:
            refused.append(str(error))
        worker.request_stop()

    async def handle_later(batch):
        handle(batch)

    worker = scenario.worker(handle if form == "plain" else handle_later)
    worker.run()
    assert len(refused) == 1
    assert "request_stop()" in refused[0]
    assert worker.stop()


# What makes work impossible is raised at once


class Refusing:
    """A client whose calls fail."""

    def __init__(self, make):
        self.make = make
        self.calls = 0

        class Meta:
            endpoint_url = "http://localhost:1"

        self.meta = Meta()

    def __getattr__(self, name):
        def call(**request):
            self.calls += 1
            raise self.make()

        return call


def client_error(code, status=400):
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "X"
    )


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: client_error("ResourceNotFoundException"), ResourceNotFoundError),
        (lambda: client_error("AccessDeniedException"), PermanentAwsError),
        (lambda: client_error("UnrecognizedClientException"), AwsConfigError),
        (lambda: EndpointConnectionError(endpoint_url="http://localhost:1"), EndpointUnreachableError),
    ],
)
@pytest.mark.parametrize("service", ["kinesis_client", "dynamodb_client"])
def test_start_errors(service, make, expected, monkeypatch):
    scenario = Scenario()
    refusing = Refusing(make)
    worker = scenario.worker(**{service: refusing})
    monkeypatch.setattr(worker._threads, "sleep", lambda seconds: None)
    if service == "dynamodb_client" and expected is ResourceNotFoundError:
        expected = PermanentAwsError  # a missing table is created, a rejected creation is an error
    with pytest.raises(expected, match="http://localhost:1"):
        worker.run()
    assert refusing.calls <= 3
    assert not worker.health().running


def test_a_stop_while_the_lease_table_does_not_answer(monkeypatch):
    scenario = Scenario()
    refusing = Refusing(lambda: client_error("InternalServerError", 500))
    worker = scenario.worker(dynamodb_client=refusing)
    waits = iter(range(25))

    def sleep(seconds):
        if next(waits) == 20:
            worker.request_stop()

    monkeypatch.setattr(worker._threads, "sleep", sleep)
    worker.start()
    assert next(waits) == 21
    assert worker.wait(0)
    assert worker.stop(0)
    assert not worker.health().running


@pytest.mark.parametrize(
    "arguments",
    [
        {"stream": ""},
        {"stream": "no such name!"},
        {"application_name": ""},
        {"application_name": "ab"},
        {"handler": 5},
        {"worker_id": ""},
    ],
)
def test_invalid_arguments(arguments):
    good = {"stream": "orders", "application_name": "billing", "handler": lambda batch: None}
    with pytest.raises(ConfigError):
        Worker(**{**good, **arguments})


def test_worker_ids_are_unique():
    first, second = (
        Worker("orders", application_name="billing", handler=lambda batch: None) for _ in range(2)
    )
    assert first.worker_id != second.worker_id


def test_health_says_that_a_worker_drains():
    """The mark is on another row of the table, so the worker need not even have a lease of its own stream."""
    scenario = Scenario(shards=1)
    mark = Lease(lease_key="other", checkpoint=ExtendedSequenceNumber("5"), draining=("w",))
    store = InMemoryLeaseStore([mark])
    metrics = ScanNoticed()
    worker = scenario.worker(lease_store=store, worker_id="w", metrics=metrics)
    assert not worker.health().draining
    with worker:
        assert metrics.scanned.wait(HANG)
        health = worker.health()
        assert health.draining
        assert health.to_dict()["draining"] is True
        assert health.running
        assert health.leases == ()
    assert store.get("other") == mark, "a stop does not end the drain"


def test_health_names_leases_that_need_repair():
    scenario = Scenario()
    store = DynamoDBLeaseStore(scenario.aws.client("dynamodb"), "billing", sleep=lambda _: None)
    store.ensure_ready()
    row = {"leaseKey": {"S": "shardId-000000000000"}, "checkpoint": {"S": "TRIM_HORIZON"}}
    scenario.aws.client("dynamodb").put_item(TableName="billing", Item=row)
    metrics = ScanNoticed()
    worker = scenario.worker(metrics=metrics)
    assert worker.health().lease_problems == ()
    with worker:
        assert metrics.scanned.wait(HANG)
        (problem,) = worker.health().lease_problems
    assert problem.lease_key == "shardId-000000000000"
    assert "KeyError: 'leaseCounter'" in problem.problem
