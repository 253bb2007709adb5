"""A fleet is observed on LocalStack: its table is found, its stream, its owner and its lag, while a worker runs and after."""

from __future__ import annotations

import json
import threading
import uuid

import boto3
from click.testing import CliRunner

from integration.waiting import eventually
from kinesis_sdk.admin import Application, Applications, Connection, FleetPoller, FleetView
from kinesis_sdk.admin.fleet.model import LagSource, OwnerKind
from kinesis_sdk.cli.main import cli
from kinesis_sdk.consumer import ConsumerConfig, RecordBatch, RecordHandler, Worker


class Handler(RecordHandler):
    """Checkpoints each batch."""

    seen = 0

    def process_records(self, batch: RecordBatch) -> None:
        batch.checkpoint()
        Handler.seen += len(batch.records)


def test_a_fleet_on_localstack(localstack: str) -> None:
    suffix = uuid.uuid4().hex[:8]
    stream, application = f"orders-{suffix}", f"billing-{suffix}"
    kinesis = boto3.client("kinesis", region_name="us-east-1", endpoint_url=localstack)
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=stream)
    for number in range(50):
        kinesis.put_record(StreamName=stream, Data=b"x", PartitionKey=str(number))
    worker = Worker(
        stream,
        application_name=application,
        handler=Handler,
        worker_id="zone-a|w1",
        region_name="us-east-1",
        endpoint_url=localstack,
        config=ConsumerConfig(initial_position="TRIM_HORIZON"),
    )
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    connection = Connection(region="us-east-1", endpoint_url=localstack)
    try:
        eventually(lambda: Handler.seen >= 50, "all records processed")
        assert application in [info.name for info in Applications(connection).find()]

        def measured() -> FleetView | None:
            view = poller.view()
            return view if view is not None and view.totals.measured == 2 else None

        # The checkpoints of real sequence numbers tell the stream from others of the same shape.
        with FleetPoller(Application(connection, application)) as poller, poller.subscribe():
            view = eventually(measured, "the lag of both shards is known")
            assert view.streams == (stream,)
            assert [(owner.worker_id, owner.kind) for owner in view.owners] == [("zone-a|w1", OwnerKind.SDK)]
            told = eventually(
                lambda: (
                    (newest := poller.view()) is not None
                    and all(lease.lag and lease.lag.source is LagSource.PROGRESS for lease in newest.leases)
                    and newest
                ),
                "the worker tells its lag",
            )
            assert told.error == ""
            assert [problem for problem in told.problems if problem.code != "unbalanced"] == []
    finally:
        worker.stop()
        thread.join(60)
    result = CliRunner().invoke(
        cli,
        [
            "lag",
            application,
            "--stream",
            stream,
            "--endpoint-url",
            localstack,
            "--region",
            "us-east-1",
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [lease["state"] for lease in document["leases"]] == ["unowned", "unowned"]
    assert document["totals"]["worst_lag_millis"] == 0
    assert [problem["code"] for problem in document["problems"]] == ["stopped"]
