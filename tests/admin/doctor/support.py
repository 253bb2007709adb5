"""A fake account with a stream, a lease table and a policy, and the examination of both."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin.doctor.diagnose import diagnose
from kinesis_sdk.admin.doctor.model import Finding, Report
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import VirtualClock
from tests.admin.account import Account


class MachineClock:
    """The clock of this machine: that of the fake account, and off by some seconds."""

    def __init__(self, clock: VirtualClock, ahead: float) -> None:
        self._clock, self.ahead = clock, ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def time(self) -> float:
        return self._clock.time() + self.ahead


class Guarded:
    """A client that denies some actions, and that remembers what was called."""

    def __init__(self, world: World, service: str) -> None:
        self._world, self._service = world, service
        self._inner = world.aws.client(service)
        self.meta = self._inner.meta

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._inner, method)
        operation = "".join(part.capitalize() for part in method.split("_"))

        def checked(**request: Any) -> Any:
            action = f"{self._service}:{operation}"
            if error := self._world.errors.get(action):
                raise error
            if action in self._world.denied:
                document: Any = {"Error": {"Code": "AccessDeniedException", "Message": f"no {action}"}}
                raise ClientError(document, operation)
            response = call(**request)
            change = self._world.changes.get(action)
            return change(response) if change else response

        return checked


class World(Account):
    """The account.

    Attributes:
        denied: Actions that the policy does not allow.
        errors: Errors to raise, by action.
        changes: Functions that change a response, by action.
    """

    def __init__(self, *, shards: int = 2, leases: bool = True, table: bool = True) -> None:
        super().__init__()
        self.machine = MachineClock(self.clock, 0.0)
        self.denied: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.changes: dict[str, Callable[[Any], Any]] = {}
        found = self.create("orders", shards)
        if table:
            self.store = self.lease_table("billing", deletion_protection=True)
        if table and leases:
            for shard in found:
                self.store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))

    def shards(self) -> list[Shard]:
        return list_shards(self.kinesis, StreamId("orders"))

    def fill(self, count: int, *, size: int = 100, keys: int = 1000, start: int = 0) -> None:
        """Put records; each second of the account's time takes what a shard accepts."""
        for at in range(start, start + count, 500):
            self.kinesis.put_records(
                StreamName="orders",
                Records=[
                    {"Data": b"x" * size, "PartitionKey": f"key-{number % keys}"}
                    for number in range(at, min(at + 500, start + count))
                ],
            )
            self.clock.advance(1.0)

    def add_consumer(self) -> None:
        stream = self.kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
        self.kinesis.register_stream_consumer(StreamARN=stream["StreamARN"], ConsumerName="fast")

    def examine(self, *, lease_store: str | None = None, **settings: Any) -> Report:
        self.clock.advance(1.0)
        connection = Connection(
            clients={name: Guarded(self, name) for name in ("kinesis", "dynamodb", "cloudwatch")},
            lease_store=lease_store,
        )
        return diagnose(
            connection, "orders", "billing", clock=self.machine, sleep=lambda _seconds: None, **settings
        )

    def finding(self, code: str, **settings: Any) -> Finding:
        return only(self.examine(**settings), code)

    def state(self) -> Any:
        """Everything that a side effect could have changed."""
        scan = self.dynamodb.scan(TableName="billing")["Items"] if self._has_table() else None
        return copy.deepcopy(
            (
                self.kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"],
                self.kinesis.list_streams()["StreamNames"],
                self.kinesis.list_shards(StreamName="orders")["Shards"],
                self.dynamodb.list_tables()["TableNames"],
                scan,
                self.aws.cloudwatch.metric_data(),
                self.aws.stats()["records_stored"],
            )
        )

    def _has_table(self) -> bool:
        return "billing" in self.dynamodb.list_tables()["TableNames"]


def only(report: Report, code: str) -> Finding:
    found = [finding for finding in report.findings if finding.code == code]
    assert len(found) == 1, [finding.code for finding in report.findings]
    return found[0]
