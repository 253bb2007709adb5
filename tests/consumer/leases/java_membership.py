"""Workers of this package in a fleet of Java KCL 3 workers: its tables, metrics items, the heartbeat of its leader."""

from __future__ import annotations

from uuid import uuid4

from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.leases.java.worker_metrics import JavaMembership
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.java import JavaWorker
from tests.consumer.leases.handoffs import add, key

COUNT = ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(balance_by="count"))


def tables(fleet):
    """The two tables of KCL 3.0 to 3.4."""
    client = fleet.aws.client("dynamodb")
    for name, hash_key in (("app-WorkerMetricStats", "wid"), ("app-CoordinatorState", "key")):
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": hash_key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": hash_key, "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
    return client


def membership(fleet, name, mode="separate_table"):
    return JavaMembership(
        fleet.aws.client("dynamodb"),
        mode=mode,
        application_name="app",
        table_name="app",
        worker_id=name,
        clock=fleet.clock,
    )


def join(fleet, name, mode="separate_table"):
    fleet.more = {"membership": membership(fleet, name, mode)}
    engine = add(fleet, name)
    fleet.more = {}
    return engine


class Heart:
    """The leader's lock, with a heartbeat of 30 s."""

    def __init__(self, fleet, table="app-CoordinatorState", hash_key="key", **more):
        self.client = fleet.aws.client("dynamodb")
        self.table, self.key, self.more = table, hash_key, more

    def __call__(self, now):
        self.client.put_item(
            TableName=self.table,
            Item={
                self.key: {"S": "Leader"},
                "ownerName": {"S": "java"},
                "leaseDuration": {"S": "120000"},
                "recordVersionNumber": {"S": str(uuid4())},
                **self.more,
            },
        )
        return now + 30.0


def led(shards, *, taken=0, mode="separate_table"):
    """A live KCL 3 leader, our worker ``py``, and a Java worker that holds the first leases; the fleet, and both workers."""
    fleet = on_dynamodb(shards, config=COUNT)
    tables(fleet)
    fleet.store.ensure_ready()
    heart = (
        Heart(fleet)
        if mode == "separate_table"
        else Heart(fleet, "app", "leaseKey", entityType={"S": "LEADER"})
    )
    fleet.add_script("heart", heart)
    fleet.run(0.1)
    engine = join(fleet, "py", mode)
    java = JavaWorker(fleet, "java", v3=True)
    for n in range(taken):
        java.take(key(n))
    if taken:
        fleet.add_script("java", java)
    return fleet, engine, java
