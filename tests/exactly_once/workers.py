"""Worker processes that can be killed or frozen at every call that they make, and in their handler.

A process that is killed makes no further call. One that is frozen goes on in the middle of its call, after the others have moved on:
its transaction is still open, its answer still unread. Databases lose requests and answers, each on its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar
from unittest.mock import patch

from kinesis_sdk.common.errors import KinesisSdkError, TransientAwsError, TransientSinkError
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, RecordBatch, RecordHandler
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.table.attributes import CHANGED_BY
from tests import HANG
from tests.consumer.fetch.fan_out import FanOutEngine
from tests.consumer.fleet import engines
from tests.consumer.fleet.engines import Fleet
from tests.consumer.fleet.table import LeaseTable
from tests.exactly_once.databases import Database

FREEZES = (0.5, 6.0, 12.0, 20.0, 40.0)
"""Seconds for which a process is frozen."""

DEPTH = 3
"""Most processes that are frozen at a time: each of them waits on the stack of the test."""


class KilledError(BaseException):
    """The process has ended; nothing that it does has an effect any more."""


@dataclass
class Weather:
    """Chances of what happens at a call, and what has happened so far.

    Attributes:
        rng: Draws.
        kill: Chance at each call that the process is killed there.
        freeze: Chance that it is frozen there.
        lost: Chance that a database's answer is lost.
        refused: Chance that a database does not carry out a call.
        failing: Chance that a handler raises, for each record.
        most: Most kills, and most freezes.
        calm: Whether nothing happens any more.
        counts: What has happened, by name.
    """

    rng: Random
    kill: float = 0.0
    freeze: float = 0.0
    lost: float = 0.0
    refused: float = 0.0
    failing: float = 0.0
    most: int = 4
    calm: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def strikes(self, chance: float, name: str, most: int | None = None) -> bool:
        """Whether something happens now."""
        if self.calm or self.rng.random() >= chance or (most is not None and self.counts[name] >= most):
            return False
        self.counts[name] += 1
        return True


@dataclass
class Outages:
    """Times at which a database does not answer at all, in seconds since the start of the schedule."""

    times: Sequence[tuple[float, float]] = ()

    def has(self, now: float) -> bool:
        return any(begin <= now < end for begin, end in self.times)


class Process:
    """A worker process, as everything around it sees it.

    Attributes:
        name: Worker id.
        dead: Whether it was killed.
        running: Whether one of its steps is on the stack, perhaps frozen.
    """

    def __init__(self, name: str, fleet: Fleet, weather: Weather) -> None:
        self.name = name
        self.dead = False
        self.running = False
        self._fleet, self._weather = fleet, weather

    def reach(self, weight: float = 1.0) -> None:
        """The process is at a call: it may end here, or stand still for a while."""
        if self.dead:
            raise KilledError(self.name)
        weather = self._weather
        if weather.calm or not self.running:
            return
        if weather.strikes(weather.kill * weight, "kills", weather.most):
            self.dead = True
            raise KilledError(self.name)
        if self._fleet.timeline.depth <= DEPTH and weather.strikes(
            weather.freeze * weight, "freezes", weather.most
        ):
            self._freeze(weather.rng.choice(FREEZES))

    def restart_reads(self) -> None:
        """Begin its reads anew, as a worker does with reads that hang."""
        engine = self._fleet.engines.get(self.name)
        if engine is not None:
            for consumer, _ in engine._consumers.values():
                consumer.restart_read()

    def _freeze(self, seconds: float) -> None:
        timeline = self._fleet.timeline

        def others() -> None:
            timeline.run(timeline.now + seconds)

        if asyncio._get_running_loop() is None:
            others()
        else:
            # Another worker's coroutines need an event loop, and a thread can run only one.
            failures: list[BaseException] = []

            def guarded() -> None:
                try:
                    others()
                except BaseException as error:  # noqa: BLE001 - raised below
                    failures.append(error)

            thread = threading.Thread(target=guarded)
            thread.start()
            thread.join(HANG)
            assert not thread.is_alive()
            if failures:
                raise failures[0]
        if self._weather.strikes(0.2, "killed while frozen"):
            self.dead = True
        if self.dead:
            raise KilledError(self.name)


class Calls:
    """Calls of a process to a service; each may be its last one, and the service may fail.

    Args:
        target: Client or store.
        process: The process.
        weather: What happens.
        outages: When the service does not answer.
        weights: Weight of a call by its name: frequent calls get a small one.
        fails: Whether calls fail; otherwise only the process does.
    """

    def __init__(
        self,
        target: Any,
        process: Process,
        weather: Weather,
        outages: Outages | None,
        weights: dict[str, float],
    ) -> None:
        self._target, self._process, self._weather, self._outages = target, process, weather, outages
        self._weights = weights
        self.meta = getattr(target, "meta", None)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if not callable(method):
            return method
        process, weather, outages = self._process, self._weather, self._outages
        weight = self._weights.get(name, 1.0)
        clock = process._fleet.clock

        def call(*arguments: Any, **more: Any) -> Any:
            process.reach(weight)
            if more.get("ShardIteratorType") == "AT_TIMESTAMP":
                weather.counts["reads of look-ups"] += 1
                if weather.strikes(0.1, "reads restarted in a look-up"):
                    process.restart_reads()
            if outages is not None and not weather.calm:
                if outages.has(clock.monotonic()):
                    weather.counts["calls in an outage of the leases"] += 1
                    raise TransientAwsError("no answer", operation=name)
                if weather.strikes(weather.refused * weight, "calls of leases not carried out"):
                    raise TransientAwsError("no answer", operation=name)
            result = method(*arguments, **more)
            process.reach(weight)
            if outages is not None and weather.strikes(weather.lost * weight, "lost answers of leases"):
                raise TransientAwsError("no answer", operation=name)
            return result

        self.__dict__[name] = call
        return call


class Connection:
    """The sink as one process calls it.

    Attributes:
        max_records: As the sink's.
        serves_coroutines: As the sink's.
    """

    def __init__(self, inner: Any, process: Process, weather: Weather, outages: Outages) -> None:
        self.inner, self.process, self.weather, self.outages = inner, process, weather, outages
        self.max_records: int | None = inner.max_records
        self.serves_coroutines: bool = getattr(inner, "serves_coroutines", True)

    def before(self, weight: float = 1.0) -> None:
        self.process.reach(weight)
        weather = self.weather
        if weather.calm:
            return
        if self.outages.has(self.process._fleet.clock.monotonic()):
            weather.counts["calls in an outage of the effects"] += 1
            raise TransientSinkError("no answer")
        if weather.strikes(weather.refused, "calls of effects not carried out"):
            raise TransientSinkError("no answer")

    def after(self) -> None:
        self.process.reach()
        if self.weather.strikes(self.weather.lost, "lost answers of effects"):
            raise TransientSinkError("no answer")

    def note(self, done: bool) -> None:
        """Note what became of a commit; its process learns of it, unless the answer is lost."""
        self.weather.counts["commits" if done else "commits refused"] += 1
        self.after()

    def ensure_ready(self) -> None:
        self.inner.ensure_ready()

    def translate(self, error: BaseException) -> BaseException:
        return self.inner.translate(error)  # type: ignore[no-any-return]

    def read(self, key: Any) -> Any:
        self.before()
        row = self.inner.read(key)
        self.after()
        return row

    def write(self, key: Any, seen: Any, row: Any) -> Any:
        self.before()
        done = self.inner.write(key, seen, row)
        self.after()
        return done

    def begin(self, key: Any, seen: Any) -> Any:
        self.before()
        transaction = self.inner.begin(key, seen)
        try:
            self.after()
        except BaseException:
            if transaction is not None:
                transaction.rollback()  # the database notices that the connection is gone
            raise
        return None if transaction is None else OpenTransaction(self, transaction)


class OpenTransaction:
    """A transaction of a process."""

    def __init__(self, connection: Connection, inner: Any) -> None:
        self.connection, self.inner, self.handle = connection, inner, inner.handle

    def commit(self, row: Any) -> Any:
        try:
            self.connection.before(3.0)
        except BaseException:
            self.inner.rollback()
            raise
        done = self.inner.commit(row)
        self.connection.note(done)
        return done

    def rollback(self) -> None:
        self.inner.rollback()


class AsyncConnection(Connection):
    """The same with coroutines; other tasks of the event loop run around each call."""

    async def ensure_ready(self) -> None:  # type: ignore[override]
        await self.inner.ensure_ready()

    async def read(self, key: Any) -> Any:
        self.before()
        row = await self.inner.read(key)
        self.after()
        return row

    async def write(self, key: Any, seen: Any, row: Any) -> Any:
        self.before()
        done = await self.inner.write(key, seen, row)
        self.after()
        return done

    async def begin(self, key: Any, seen: Any) -> Any:
        self.before()
        transaction = await self.inner.begin(key, seen)
        self.after()
        return None if transaction is None else AsyncOpenTransaction(self, transaction)


class AsyncOpenTransaction(OpenTransaction):
    async def commit(self, row: Any) -> Any:
        self.connection.before(3.0)
        done = await self.inner.commit(row)
        self.connection.note(done)
        return done

    async def rollback(self) -> None:  # type: ignore[override]
        await self.inner.rollback()


class Application:
    """A fleet of worker processes with a lease table in one database and effects in another.

    Args:
        name: Name of the application.
        fleet: The stream and the timeline.
        database: Where the effects are.
        weather: What happens to its processes and databases.
        config: Settings of its workers.
        lease_outages: When the lease table does not answer.
        effect_outages: When the database of the effects does not.
        pushed: Whether its workers read with enhanced fan-out.
    """

    # Most calls are polls and scans of idle workers; what happens around commits is what these schedules are for.
    KINESIS: ClassVar[dict[str, float]] = {
        "get_records": 0.1,
        "get_shard_iterator": 0.5,
        "subscribe_to_shard": 0.5,
    }
    LEASES: ClassVar[dict[str, float]] = {"scan": 0.05, "renew": 0.3, "list": 0.05}

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        database: Database,
        weather: Weather,
        config: ConsumerConfig,
        lease_outages: Outages,
        effect_outages: Outages,
        *,
        pushed: bool = False,
    ) -> None:
        self.name, self.fleet, self.database, self.weather = name, fleet, database, weather
        self.config = config
        self.leases = LeaseTable()
        # What each row was before, so that one can be set back, and the table be restored.
        self._history: dict[str, list[Lease]] = {}
        self.leases.on_write.append(
            lambda before, _: self._history.setdefault(before.lease_key, []).append(before)
        )
        self._engine: type[ConsumerEngine] = (
            type("PushedEngine", (FanOutEngine,), {"consumer_name": name}) if pushed else ConsumerEngine
        )
        self.processes: dict[str, Process] = {}
        self._lease_outages, self._effect_outages = lease_outages, effect_outages
        self._started = 0

    @property
    def discards(self) -> bool:
        """Whether it discards misplaced aggregates of producers that are not idempotent."""
        return self.config.failure.misplaced_aggregates == "discard"

    def start(self) -> None:
        """Start a worker process."""
        self._started += 1
        name = f"{self.name}-{self._started}"
        fleet, weather = self.fleet, self.weather
        process = self.processes[name] = Process(name, fleet, weather)
        connection = AsyncConnection if self.database.is_async else Connection
        kinesis, store, more = fleet.kinesis, fleet.store, fleet.more
        fleet.kinesis = Calls(kinesis, process, weather, None, self.KINESIS)  # type: ignore[assignment]
        fleet.store = Calls(self.leases, process, weather, self._lease_outages, self.LEASES)
        fleet.more = {
            "sink": connection(self.database.sink, process, weather, self._effect_outages),
            "application_name": self.name,
        }
        try:
            with patch.object(engines, "ConsumerEngine", self._engine):
                engine = fleet.add(name, self._handler(process), self.config)
        except KinesisSdkError:
            # A process whose databases do not answer ends, and something starts it again.
            weather.counts["failed starts"] += 1
            del self.processes[name]
            fleet.timeline.at(fleet.timeline.now + 3.0, self.start)
            return
        finally:
            fleet.kinesis, fleet.store, fleet.more = kinesis, store, more
        alarm = fleet._members[name].alarm

        def step() -> None:
            if process.running:
                alarm.set(fleet.clock.monotonic() + 1.0)  # it stands still in the middle of its last step
                return
            process.running = True
            try:
                fleet._tick(name, engine)
            except KilledError:
                pass
            except BaseException:
                # What a process that is gone makes of the error in its hands is no matter.
                if not process.dead:
                    raise
            finally:
                process.running = False
            if process.dead:
                self._bury(name)

        alarm._action = step

    def _bury(self, name: str) -> None:
        if name in self.fleet._members:
            self.fleet.crash(name)
        del self.processes[name]
        delay = self.weather.rng.choice((0.01, 2.0, 20.0))
        self.fleet.timeline.at(self.fleet.timeline.now + delay, self.start)

    def replace(self) -> None:
        """Stop a worker cleanly and start another one."""
        running = [
            name for name, process in self.processes.items() if not process.running and not process.dead
        ]
        live = [name for name in running if name in self.fleet.engines]
        if live:
            self.weather.counts["clean stops"] += 1
            self.fleet.stop(self.weather.rng.choice(live))
            self.start()

    def restart_reads(self) -> None:
        """Begin the reads of a worker anew."""
        if self.processes and not self.weather.calm:
            self.weather.counts["reads restarted"] += 1
            self.processes[self.weather.rng.choice(list(self.processes))].restart_reads()

    def rewind(self, rng: Random) -> None:
        """Set leases back behind the sink's back, as an operator does, or as a table is restored from a backup.

        The sink's rows stay. They are the authority, so what has taken effect must not do so again.
        """
        rows = [row for row in self.leases.list() if self._history.get(row.lease_key)]
        if not rows or self.weather.calm:
            return
        if rng.random() < 0.25:
            # The counters of a backup are lower, too. Rows that are younger than the backup stay.
            self.weather.counts["lease tables restored"] += 1
            for row in rows:
                self.leases._rows[row.lease_key] = rng.choice(self._history[row.lease_key][-20:])
            return
        row = rng.choice(rows)
        earlier = [old.checkpoint for old in self._history[row.lease_key] if old.checkpoint < row.checkpoint]
        # Most leases are at their start until the shard ends, because checkpoints are rare beside a sink. Such a row changes in its
        # counter alone: its owner has to begin again.
        position = rng.choice([ExtendedSequenceNumber(TRIM_HORIZON), *earlier])
        self.weather.counts["leases set back" if not row.is_finished else "finished leases set back"] += 1
        self.leases._rows[row.lease_key] = replace(
            row,
            checkpoint=position,
            counter=row.counter + 2,
            owner=rng.choice([row.owner, None]),
            extra={**row.extra, CHANGED_BY: {"S": "an operator"}},
        )

    def _handler(self, process: Process) -> type[RecordHandler]:
        weather, database = self.weather, self.database

        def failing() -> None:
            if weather.strikes(weather.failing, "handlers that raised"):
                raise ValueError("the handler cannot go on")

        class Plain(RecordHandler):
            def initialize(self, shard: Any) -> None:
                process.reach()

            def process_records(self, batch: RecordBatch) -> None:
                process.reach()
                for record in batch.records:
                    failing()
                    database.write(batch.transaction, batch.shard_id, record)
                    process.reach(0.3)
                process.reach()

            def shard_ended(self, checkpointer: Any) -> None:
                process.reach()
                checkpointer.checkpoint()

        class Coroutines(RecordHandler):
            async def initialize(self, shard: Any) -> None:
                process.reach()

            async def process_records(self, batch: RecordBatch) -> None:
                process.reach()
                for record in batch.records:
                    failing()
                    await asyncio.sleep(0)
                    database.write(batch.transaction, batch.shard_id, record)
                    process.reach(0.3)
                process.reach()

            async def shard_ended(self, checkpointer: Any) -> None:
                process.reach()
                await asyncio.sleep(0)
                checkpointer.checkpoint()

        return Coroutines if database.is_async else Plain
