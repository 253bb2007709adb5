"""Real workers with their threads, on the fake AWS."""

from __future__ import annotations

import threading

from kinesis_sdk.common.catalogue import UNREADABLE_LEASES
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig, RetrievalConfig, Worker
from kinesis_sdk.testing import FakeAws
from tests import HANG

QUICK = ConsumerConfig(
    initial_position="TRIM_HORIZON",
    leases=LeaseConfig(lease_scan_interval=0.1),
    retrieval=RetrievalConfig(idle_time_between_reads=0.2),
)


class Scenario:
    def __init__(self, shards=2):
        self.aws = FakeAws()
        self.kinesis = self.aws.client("kinesis")
        self.kinesis.create_stream(StreamName="orders", ShardCount=shards)
        self.got = []
        self.arrived = threading.Condition()

    def put(self, *data):
        self.kinesis.put_records(
            StreamName="orders", Records=[{"Data": one, "PartitionKey": one.decode()} for one in data]
        )

    def handle(self, batch):
        with self.arrived:
            self.got += [record.data for record in batch.records]
            self.arrived.notify_all()

    def wait(self, count):
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= count, HANG)

    def worker(self, handler=None, *, config=QUICK, **more):
        more.setdefault("kinesis_client", self.kinesis)
        if "lease_store" not in more:
            more.setdefault("dynamodb_client", self.aws.client("dynamodb"))
        return Worker(
            "orders", application_name="billing", handler=handler or self.handle, config=config, **more
        )


class ScanNoticed:
    """A metrics sink that notices the end of the first scan of the lease table."""

    def __init__(self):
        self.scanned = threading.Event()

    def add(self, metric, *observed):
        if metric is UNREADABLE_LEASES:  # recorded at the end of each scan
            self.scanned.set()

    def retire(self, scope):
        pass


def run_to_its_end(worker):
    """Return what `run` raises; fail if it does not return."""
    outcome = []

    def run():
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert outcome, f"run has not returned: {worker.health()}"
    return outcome[0]
