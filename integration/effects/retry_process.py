"""A worker whose handler fails on some records, and that kills itself at chosen steps of a retry."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy

from integration.effects.kills import Steps
from integration.endtoend.producer_process import wait_for_end
from integration.endtoend.worker_process import start_worker
from kinesis_sdk.common.dead_letters import History
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import (
    AsyncSqlSink,
    ConsumerConfig,
    LeaseConfig,
    RecordBatch,
    RetrievalConfig,
    SqlSink,
    Worker,
)
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.retries import RetryTable, RetryTiers, RetryWorker, StreamTiers

DELAYS = (1, 2)
_TABLES = sqlalchemy.MetaData()
EFFECTS, DEAD = (
    sqlalchemy.Table(
        name,
        _TABLES,
        sqlalchemy.Column(
            "place", sqlalchemy.BigInteger().with_variant(sqlalchemy.Integer, "sqlite"), primary_key=True
        ),
        sqlalchemy.Column("number", sqlalchemy.Integer, nullable=False),
    )
    for name in ("effects", "dead")
)
"""A repeated effect is a second row."""

POINTS = ("before effect", "after effect", "before keep", "after keep", "before dead", "after dead")
"""Steps at which a process kills itself: before and after the effects of a batch, the copy or row of a record that is set aside, and its
dead letter. After each of them comes a commit or a checkpoint."""


_CHANCES = dict(zip(POINTS, (0.1, 0.1, 0.3, 0.3, 0.7, 0.7), strict=True))
"""Chance of a kill by point: the first ones are reached more often."""


def fails(number: int, rounds: int) -> bool:
    """Return whether the handler fails on a record that has failed in so many rounds: a fifth at first, a thirtieth always."""
    return number % 5 == 0 and (rounds == 0 or (number % 15 == 0 and rounds == 1) or number % 30 == 0)


class Process:
    """Worker and tiers of one process.

    Args:
        settings: ``kind`` is ``stream``, ``table``, ``order`` or ``coroutines`` (in order, too); ``kills_itself`` tells whether it does.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        steps = Steps(settings, _CHANCES)
        self._at, self._around = steps.at, steps.around
        self.has_sink = settings["kind"] != "stream"
        self.awaits = settings["kind"] == "coroutines"
        self._engine = sqlalchemy.create_engine(settings["database"])
        self._producer = Producer(
            ProducerConfig(record_max_buffered_time=0.02),
            endpoint_url=settings["endpoint_url"],
            region_name="us-east-1",
        )
        self.table = RetryTable(
            settings["database"],
            application_name="retried",
            keep_order=settings["kind"] in ("order", "coroutines"),
        )
        to: Any = self.table if self.has_sink else StreamTiers(self._producer, settings["stream"])
        keep = to.keep
        to.keep = lambda *given: self._around("keep", lambda: keep(*given))
        dead_letter: Any = self._dead_letter_async if self.awaits else self._dead_letter
        self.tiers = RetryTiers(DELAYS, to=to, dead_letter=dead_letter, attempts=1)
        self.handler: Any = self.handle_async if self.awaits else self.handle

    def _write(self, table: sqlalchemy.Table, transaction: Any, numbers: list[int]) -> None:
        rows = [{"number": number} for number in numbers]
        if transaction:
            transaction.execute(table.insert(), rows)
        else:
            with self._engine.begin() as connection:
                connection.execute(table.insert(), rows)

    def _dead_letter(self, poison: PoisonRecord) -> None:
        number = int(poison.record.data)
        self._around("dead", lambda: self._write(DEAD, poison.transaction, [number]))

    async def _dead_letter_async(self, poison: PoisonRecord) -> None:
        self._at("before dead")
        await poison.transaction.execute(DEAD.insert(), [{"number": int(poison.record.data)}])
        self._at("after dead")

    async def handle_async(self, batch: RecordBatch) -> None:
        """As `handle`, with an asynchronous connection."""
        numbers, has_failed = _told(batch)
        self._at("before effect")
        await batch.transaction.execute(EFFECTS.insert(), [{"number": number} for number in numbers])
        self._at("after effect")
        if has_failed:
            raise ValueError("planned")

    def handle(self, batch: RecordBatch) -> None:
        """Write the effects of a batch; with a transaction before the failure, which has to undo them."""
        numbers, has_failed = _told(batch)
        if has_failed and not self.has_sink:
            raise ValueError("planned")
        self._around("effect", lambda: self._write(EFFECTS, batch.transaction, numbers))
        if has_failed:
            raise ValueError("planned")

    @property
    def async_url(self) -> str:
        """The database with an asynchronous driver."""
        url: str = self._settings["database"]
        return url.replace("sqlite://", "sqlite+aiosqlite://")

    def workers(self) -> list[Callable[[], Worker]]:
        """Return what makes the workers of this process."""
        settings = self._settings
        config = ConsumerConfig(
            initial_position="TRIM_HORIZON",
            on_handler_error=self.tiers,
            batch_records=20,
            checkpoint_interval=1.0,
            leases=LeaseConfig(failover_time=3, balance_by="count"),
            retrieval=RetrievalConfig(idle_time_between_reads=0.2),
        )
        more: dict[str, Any] = {
            "config": config,
            "endpoint_url": settings["endpoint_url"],
            "region_name": "us-east-1",
            "worker_id": settings["worker_id"],
        }
        handler = self.table.in_order(self.handler) if self.table.keeps_order else self.handler
        sink: Any = None
        if self.has_sink:
            sink = AsyncSqlSink(self.async_url) if self.awaits else SqlSink(settings["database"])
        made: list[Callable[[], Worker]] = [
            lambda: Worker(settings["stream"], application_name="retried", handler=handler, sink=sink, **more)
        ]
        if not self.has_sink:
            made.append(
                lambda: Worker(
                    streams=self.tiers.streams(), application_name="tiers", handler=self.handle, **more
                )
            )
        return made


def _told(batch: RecordBatch) -> tuple[list[int], bool]:
    """Return the numbers of a batch, and whether the handler fails on it."""
    numbers = [int(record.data) for record in batch.records]
    histories = [History.of(record.headers) for record in batch.records]
    return numbers, any(
        fails(number, 0 if history is None else history.attempt)
        for number, history in zip(numbers, histories, strict=True)
    )


def main() -> int:
    """Process records until told to stop, or killed."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = StopFlag()
    wait_for_end(stop)
    process = Process(settings)
    database = process.async_url if process.awaits else None
    retries = RetryWorker(process.table, process.tiers, process.handler, database=database, poll_interval=0.2)
    workers = [start_worker(make, stop) for make in process.workers()]
    if process.has_sink:
        retries.start()
    while not stop.wait(0.2):
        pass
    retries.stop()
    for worker in workers:
        if worker is not None:
            worker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
