"""Fleets of real lease coordinators in virtual time, without records.

Every worker runs the coordinator, observer, strategy and held leases that ship. The world is simulated: a table
that loses, delays and rejects calls, processes that freeze and die, clocks that drift, a stream that splits and
merges. Calls take time: while one worker waits for the table, the others continue. A seed replays exactly.

`ownership` checks every write.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kinesis_sdk.common.errors import AwsError, KinesisSdkError, LeaseLostError, TransientAwsError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.metrics import NOT_MEASURED
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, find_hole, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.lease_coordinator import LeaseCoordinator
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.strategies.by_throughput import weights_of
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime, Loop
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream
from tests.consumer.fleet.balance import spread, uneven, unfair
from tests.consumer.fleet.connection import KclTableConnection, ProcessDied, TableConnection, TableFaults
from tests.consumer.fleet.lifecycle import Lifecycle
from tests.consumer.fleet.ownership import DRIFT, OwnedLeaseTable
from tests.consumer.fleet.timeline import Alarm, Timeline
from tests.consumer.java_strategy import JavaKcl2Strategy

END = ExtendedSequenceNumber(SHARD_END)


class SingleThreadedLock:
    """Replacement of a held lease's lock: a simulated process is one thread, which a real re-entrant lock admits."""

    def __init__(self, fleet: CoordinatorFleet) -> None:
        self._fleet = fleet
        self._depths: list[int] = []

    def __enter__(self) -> None:
        # The same call may enter again, as with the real lock; another one runs deeper, within the first one's wait.
        if self._depths and self._fleet.timeline.depth > self._depths[-1]:
            raise TransientAwsError("another write of this lease is under way", operation="table")
        self._depths.append(self._fleet.timeline.depth)

    def __exit__(self, *error: object) -> None:
        self._depths.pop()


class FixedRateMeter:
    """Replacement of a held lease's meter: a rate that the test sets, with the jitter of a measurement."""

    def __init__(self, fleet: CoordinatorFleet, key: str) -> None:
        self._fleet, self._key = fleet, key
        self._average: float | None = None

    def read(self, now: float) -> float | None:
        assert self._fleet.rate is not None
        fresh = self._fleet.rate(self._key) * self._fleet.jitter ** self._fleet.rng.uniform(-1, 1)
        self._average = fresh if self._average is None else (fresh + self._average) / 2
        return self._average


class ProcessRuntime(InlineRuntime):
    """The clock of a process; its calls take time. A renewal that failed is repeated right after its loop's run."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(process, Random(f"{process.fleet.seed} {process.name}"), process.wait)
        self._process = process

    def wake(self, loop: Loop, /) -> None:
        if loop == "renewals":
            self._process.renew_again()


class WorkerProcess:
    """One worker: its coordinator with two loops, and a shard consumer that only checkpoints and ends.

    Attributes:
        is_java: Whether it follows the KCL 2.x's rules, which take leases without a handoff.
    """

    connection_class = TableConnection
    measures = True
    """Whether it writes the throughput of its shards, as KCL 3 does and KCL 2.x does not."""

    def __init__(self, fleet: CoordinatorFleet, name: str, config: ConsumerConfig) -> None:
        self.fleet, self.name, self.config = fleet, name, config
        self.is_java = config.leases.lease_strategy == "kcl2"
        self.life = Lifecycle()
        rng = fleet.rng
        self.rate = 1 + DRIFT * rng.uniform(-1, 1) if fleet.drifting else 1.0
        self.offset = rng.uniform(0, 1e6)
        self.connection = self.connection_class(self, fleet.table)
        self._alarms = {
            loop: Alarm(fleet.timeline, self.life, partial(self._step, loop)) for loop in ("renew", "tick")
        }
        self._running: set[str] = set()
        self._again = False
        self.error: BaseException | None = None
        self.children = ChildLeases(
            self.connection, lambda: list_shards(fleet, StreamId("orders")), self._nothing
        )
        self.coordinator = LeaseCoordinator(
            streams=StreamDirectory(config, fleet, stream=StreamId("orders"), sleep=self.wait),  # type: ignore[arg-type]
            worker_id=name,
            config=config,
            store=self.connection,
            kinesis=fleet,  # type: ignore[arg-type] - only its list_shards is called
            runtime=ProcessRuntime(self),
            listener=self,
            metrics=NOT_MEASURED,
        )

    # Time

    def monotonic(self) -> float:
        return self.offset + self.fleet.now * self.rate

    def time(self) -> float:
        return 1.7e9 + self.fleet.now

    def wait(self, seconds: float) -> None:
        """Spend time in a call. The world continues, and this process may freeze or die meanwhile."""
        fleet, life = self.fleet, self.life
        if fleet.timeline.depth == 1:
            # A call returns only after the calls that began while it waited. Those take no time of their own, because
            # their times would add up. Each call is the outermost one often enough.
            fleet.run(fleet.now + seconds)
        while not life.is_dead and life.is_frozen(fleet.now):
            fleet.run(life.frozen_until)
        if life.is_dead:
            raise ProcessDied

    def start(self) -> None:
        self._guard("tick", lambda: self.coordinator.start() or 0.0)
        if not self.coordinator._due:
            return  # the table was unreachable for longer than a start repeats its calls; `_step` starts it again
        self._guard("tick", lambda: self.coordinator.tick(self.monotonic()))
        self._guard("renew", lambda: self.coordinator.renew(self.monotonic()))

    def _guard(self, loop: str, step: Callable[[], float]) -> None:
        """Run a step of a loop unless it is still in a call, then come back when it is due."""
        if self.life.is_dead or loop in self._running:
            return
        self._running.add(loop)
        try:
            due = step()
            if loop == "renew" and self._again:
                self._again, due = False, self.monotonic()
        except ProcessDied:
            return
        except AwsError as error:
            assert error.retryable
            due = self.monotonic() + 0.5
        finally:
            self._running.discard(loop)
        self.wake(loop, due)

    def wake(self, loop: str, due: float) -> None:
        """Run a loop when this process's own clock shows ``due``."""
        self._alarms[loop].set(max(self.fleet.now + 0.001, (due - self.offset) / self.rate))

    def _step(self, loop: str) -> None:
        if self.life.is_frozen(self.fleet.now):
            self.wake(loop, self.offset + self.life.frozen_until * self.rate)
            return
        if not self.coordinator._due:
            self.start()  # its supervisor starts it again
            return
        body = self.coordinator.renew if loop == "renew" else self.coordinator.tick
        self._guard(loop, lambda: body(self.monotonic()))

    # Shard consumer

    def held(self, key: str) -> HeldLease | None:
        return self.coordinator.held._by_key.get(key)

    def on_lease_acquired(self, held: HeldLease) -> None:
        held._lock = SingleThreadedLock(self.fleet)  # type: ignore[assignment]
        if self.fleet.rate is not None and self.measures:
            held.meter = FixedRateMeter(self.fleet, held.key)  # type: ignore[assignment]
        self.wake("renew", self.monotonic())
        self._work(held, 0.3 + self.fleet.rng.random() * 2)

    def _work(self, held: HeldLease, pause: float) -> None:
        self.fleet.at(self.fleet.now + pause, lambda: self._consume(held))

    def _consume(self, held: HeldLease) -> None:
        """Checkpoint now and then, and end with the shard."""
        fleet = self.fleet
        if self.life.is_dead or held.gone is not None:
            return
        if self.life.is_frozen(fleet.now):
            self._work(held, self.life.frozen_until - fleet.now)
            return
        if not held.is_held(self.monotonic()):
            return  # the loop that renews ends it
        try:
            children = fleet.children_of(held.key)
            parents = [fleet.table.get(key) for key in held.lease.parent_shard_ids]
            if children and all(row is None or row.is_finished for row in parents):
                if self.children.create(held.key, children):
                    held.checkpoint(END)
                    held.mark_lost("finished")
                    self.coordinator.forget(held)
                    self.coordinator.request("scan")
                    self.wake("tick", self.monotonic())
                    return
            elif fleet.rng.random() < 0.3 and not held.lease.is_finished:
                # A KCL 2.x worker also holds finished leases, here one whose parent was rewound; it only renews them.
                position = held.lease.checkpoint
                sequence = 10**6 if position.is_sentinel else int(position.sequence_number) + 1
                requested_before = held.handoff_requester is not None
                held.checkpoint(ExtendedSequenceNumber(str(sequence)))
                if held.handoff_requester is not None and not requested_before:
                    # A checkpoint reveals a request as well; a shard consumer checks for it at each step.
                    self.on_handoff_requested(held)
        except (ProcessDied, LeaseLostError):
            return
        except AwsError:
            pass
        self._work(held, 1 + fleet.rng.random() * 6)

    def on_handoff_requested(self, held: HeldLease) -> None:
        self.fleet.at(self.fleet.now + self.fleet.rng.random(), lambda: self._release(held))

    def on_release_wanted(self, held: HeldLease) -> None:
        self.on_handoff_requested(held)

    def _release(self, held: HeldLease) -> None:
        if self.life.is_dead or held.gone is not None:
            return
        if self.life.is_frozen(self.fleet.now):
            self.fleet.at(self.life.frozen_until, lambda: self._release(held))
            return
        try:
            held.release()
        except (ProcessDied, LeaseLostError):
            pass
        except AwsError:
            self.fleet.at(self.fleet.now + 0.5, lambda: self._release(held))
            return
        self.coordinator.forget(held)
        if held.handed_off_row is not None:
            self.wake("tick", self.monotonic())  # as the engine does

    # Stops and faults

    def stop(self) -> None:
        """Stop cleanly: take no more leases, release all, and end after five seconds."""
        self.life.begin_stop()
        self.coordinator.stop_taking()
        for held in self.coordinator.held:
            self._release(held)
        self.fleet.at(self.fleet.now + 5, self.crash)

    def crash(self) -> None:
        """End without releasing anything."""
        self.life.die()

    def freeze(self, seconds: float) -> None:
        """Stop running for some seconds."""
        self.life.freeze(self.fleet.now + seconds)

    def on_lease_lost(self, held: HeldLease) -> None:
        pass

    def on_streams_changed(self) -> None:
        pass

    def on_stream_unavailable(self, tracked: TrackedStream, error: KinesisSdkError) -> None:
        raise AssertionError(f"{tracked}: {error}")

    def busy_lease_keys(self) -> Collection[str]:
        """Return the leases with a shard consumer; here they are those that are held."""
        return self.coordinator.held.keys()

    def on_fatal_error(self, error: BaseException) -> None:
        if not self.life.is_dead and not isinstance(error, ProcessDied):
            self.error = error
            raise error

    def renew_again(self) -> None:
        """Run the renewal loop again right after its current run."""
        self._again = True

    def _nothing(self) -> None:
        pass


class KclWorkerProcess(WorkerProcess):
    """A KCL 2.x worker: fixed-rate renewals without repetition, no handoffs, finished leases counted.

    Its rows carry no handoff marker, so peers take its leases without asking.
    """

    connection_class = KclTableConnection
    measures = False

    def __init__(self, fleet: CoordinatorFleet, name: str, config: ConsumerConfig) -> None:
        super().__init__(fleet, name, config.with_fields(lease_strategy=JavaKcl2Strategy()))
        self.is_java = True


@dataclass
class CoordinatorFleet:
    """The world: time, the table, the stream, the processes."""

    seed: int = 1
    shards_at_start: int = 4
    config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig(initial_position="TRIM_HORIZON"))
    drifting: bool = True
    rate: Callable[[str], float] | None = None
    """KB/s that a shard delivers; None: nothing is measured."""
    jitter: float = 1.0
    """Factor by which a measurement may miss the rate."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.timeline = Timeline()
        self.faults = TableFaults()
        self.table = OwnedLeaseTable(self)
        self.rates: dict[str, float] = {}
        self.processes: list[WorkerProcess] = []
        self.shards: dict[str, dict[str, Any]] = {}
        self.closed: set[str] = set()
        random.seed(self.seed)  # the pauses between retries come from the module's generator
        self.meta = None
        size = (MAX_HASH_KEY + 1) // self.shards_at_start
        for n in range(self.shards_at_start):
            end = MAX_HASH_KEY if n == self.shards_at_start - 1 else (n + 1) * size - 1
            self._add_shard(n * size, end)

    # Time

    @property
    def now(self) -> float:
        return self.timeline.now

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self.timeline.at(moment, action)

    def run(self, until: float) -> None:
        """Let time pass; called from within calls as well, so it nests."""
        self.timeline.run(until)

    # The stream

    def _add_shard(self, start: int, end: int, *parents: str) -> None:
        shard: dict[str, Any] = {
            "ShardId": f"shardId-{len(self.shards):012d}",
            "HashKeyRange": {"StartingHashKey": str(start), "EndingHashKey": str(end)},
            "SequenceNumberRange": {"StartingSequenceNumber": str(len(self.shards) + 1)},
        }
        for name, parent in zip(("ParentShardId", "AdjacentParentShardId"), parents, strict=False):
            shard[name] = parent
            self.closed.add(parent)
            self.shards[parent]["SequenceNumberRange"]["EndingSequenceNumber"] = str(10**9)
        self.shards[shard["ShardId"]] = shard

    def list_shards(self, **request: Any) -> dict[str, Any]:
        shards = [*self.shards.values()]
        if "ShardFilter" in request:
            # TRIM_HORIZON shows only shards without parents, as long as nothing is trimmed.
            shards = [shard for shard in shards if "ParentShardId" not in shard]
        return {"Shards": shards}

    def open_shards(self) -> list[dict[str, Any]]:
        return sorted(
            (shard for key, shard in self.shards.items() if key not in self.closed),
            key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]),
        )

    def split(self) -> None:
        shard = self.rng.choice(self.open_shards())
        low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
        self._add_shard(low, (low + high) // 2, shard["ShardId"])
        self._add_shard((low + high) // 2 + 1, high, shard["ShardId"])

    def merge(self) -> None:
        shards = self.open_shards()
        if len(shards) < 2:
            return
        first = self.rng.randrange(len(shards) - 1)
        one, other = shards[first], shards[first + 1]
        low, high = one["HashKeyRange"]["StartingHashKey"], other["HashKeyRange"]["EndingHashKey"]
        self._add_shard(int(low), int(high), one["ShardId"], other["ShardId"])

    def children_of(self, key: str) -> list[Any]:
        if key not in self.closed:
            return []
        return [
            Shard.from_api(shard)
            for shard in self.shards.values()
            if key in (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        ]

    # The fleet

    def add(self, name: str, *, config: ConsumerConfig | None = None, java: bool = False) -> WorkerProcess:
        kind = KclWorkerProcess if java else WorkerProcess
        return self.join(kind(self, name, config or self.config))

    def join(self, process: WorkerProcess) -> WorkerProcess:
        """Start a worker of any kind now."""
        self.processes.append(process)
        self.at(self.now, process.start)
        return process

    @property
    def live(self) -> list[WorkerProcess]:
        return [process for process in self.processes if process.life.is_live]

    def drain(self, process: WorkerProcess) -> None:
        """Mark a worker as an operator does, on any unfinished row."""
        rows = self.leases()
        if rows:
            self.table.set_drain(self.rng.choice(rows).lease_key, process.name, True)

    def undrain(self, process: WorkerProcess) -> None:
        """Remove the marks of a worker from all rows."""
        for row in self.table.list():
            if process.name in row.draining:
                self.table.set_drain(row.lease_key, process.name, False)

    @property
    def takers(self) -> list[WorkerProcess]:
        """Live workers that are not drained."""
        drained = {worker for row in self.table.list() for worker in row.draining}
        return [process for process in self.live if process.name not in drained]

    @property
    def java(self) -> list[WorkerProcess]:
        return [process for process in self.live if isinstance(process, KclWorkerProcess)]

    # Conditions of a good end

    def leases(self) -> list[Lease]:
        return [lease for lease in self.table.list() if not lease.is_finished]

    def load(self) -> dict[str, int]:
        counts = Counter(lease.owner for lease in self.leases() if lease.owner)
        return {process.name: counts[process.name] for process in self.takers}

    def settled(self) -> str | None:
        """Return None if every lease is owned, held and balanced; else what is not."""
        leases = self.leases()
        live = {process.name: process for process in self.takers}
        ranges = [lease.hash_key_range for lease in leases if lease.hash_key_range is not None]
        if find_hole(ranges) is not None:
            return "the hash key range is not covered"
        if any(lease.lease_key in self.closed for lease in leases):
            return "a closed shard is not finished"
        for lease in leases:
            owner = live.get(lease.owner or "")
            if owner is None or lease.in_handoff:
                return f"{lease.lease_key} is owned by {lease.owner}, marker {lease.checkpoint_owner}"
            held = owner.held(lease.lease_key)
            if held is None or not held.is_held(owner.monotonic()):
                return f"{lease.lease_key}: {lease.owner} does not believe in it"
        pins = Counter(lease.pinned_to for lease in leases if lease.pinned_to in live)
        for lease in leases:
            if lease.pinned_to in live and lease.owner != lease.pinned_to:
                return f"{lease.lease_key} is pinned to {lease.pinned_to}, and owned by {lease.owner}"
        if pins:
            load = self.load()
            most = max(min(load.values()) + 1, 1)
            over = {name: count for name, count in load.items() if count > max(most, pins[name])}
            return (
                f"spread beside pins: {load}, {dict(pins)}" if over and weights_of(leases) is None else None
            )
        if not self.java:
            weights = weights_of(leases)
            if weights is None:
                return unfair(self.load())
            return uneven(leases, [*live], weights)
        # A KCL worker does not take a lease for the sake of its group. It counts finished leases as work, so a fleet
        # of KCL workers alone need not even be level.
        load = self.load()
        level = len(self.java) == len(live) or spread(load) <= 1
        return None if level else f"spread over workers: {load}"

    def believers(self) -> dict[str, list[str]]:
        """Return the processes that believe they hold a lease, by its key."""
        result: dict[str, list[str]] = {}
        for process in self.processes:
            if not process.life.is_dead and not process.life.is_frozen(self.now):
                for held in process.coordinator.held:
                    if held.is_held(process.monotonic()):
                        result.setdefault(held.key, []).append(process.name)
        return result
