"""Whole fleets at the level of leases, in virtual time: real coordinators, no records.

Every worker runs the coordinator, observer, strategy and held leases that ship. What is simulated is the world: a table
that loses, delays and refuses calls, processes that freeze and die, clocks that drift, a stream that splits and
merges. Calls take time: while one worker waits for the table, the others go on. A seed replays exactly.

Checked at every write: counters only rise, by one; only the last taker writes; nobody takes a lease as expired from
a worker that still believes in it; a child lease appears only where each parent is finished or has a lease.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
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
from kinesis_sdk.consumer.leases.strategies import group_of
from kinesis_sdk.consumer.leases.strategies.by_throughput import MARGIN, weights_of
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime, Loop
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream
from tests.consumer.fleet_table import DRIFT, Faults, Gone, Link, Table
from tests.consumer.java_strategy import JavaKcl2Strategy

END = ExtendedSequenceNumber(SHARD_END)


class OneAtATime:
    """In place of a held lease's lock: all of a simulated process is one thread, which a real lock would let in."""

    def __init__(self, fleet: FleetSimulator) -> None:
        self._fleet = fleet
        self._depths: list[int] = []

    def __enter__(self) -> None:
        # The same call may enter again, as with the real lock; another one runs deeper, within the first one's wait.
        if self._depths and self._fleet.depth > self._depths[-1]:
            raise TransientAwsError("another write of this lease is under way", operation="table")
        self._depths.append(self._fleet.depth)

    def __exit__(self, *error: object) -> None:
        self._depths.pop()


class Measured:
    """In place of a held lease's meter: a rate that is known to the test, with the jitter of a measurement."""

    def __init__(self, fleet: FleetSimulator, key: str) -> None:
        self._fleet, self._key = fleet, key
        self._average: float | None = None

    def read(self, now: float) -> float | None:
        assert self._fleet.rate is not None
        fresh = self._fleet.rate(self._key) * self._fleet.jitter ** self._fleet.rng.uniform(-1, 1)
        self._average = fresh if self._average is None else (fresh + self._average) / 2
        return self._average


class ProcessRuntime(InlineRuntime):
    """The clock of a process; its calls take time. A renewal that failed is repeated right after its loop's run."""

    def __init__(self, process: Process) -> None:
        super().__init__(process, Random(f"{process.fleet.seed} {process.name}"), process.wait)
        self._process = process

    def wake(self, loop: Loop, /) -> None:
        if loop == "renewals":
            self._process.renew_again()


class Process:
    """One worker: its coordinator with two loops, and a shard consumer that only knows how to end."""

    kind = "balanced"
    measures = True
    """Whether it writes the throughput of its shards, as KCL 3 does and KCL 2.x does not."""

    def __init__(self, fleet: FleetSimulator, name: str, config: ConsumerConfig) -> None:
        self.fleet, self.name, self.config = fleet, name, config
        self.kind = config.lease_strategy if isinstance(config.lease_strategy, str) else "custom"
        self.state = "live"
        self.thaw_at = 0.0
        rng = fleet.rng
        self.rate = 1 + DRIFT * rng.uniform(-1, 1) if fleet.drifting else 1.0
        self.offset = rng.uniform(0, 1e6)
        self.link = Link(self, fleet.table)
        self._due = {"renew": 0.0, "tick": 0.0}
        self._running: set[str] = set()
        self._again = False
        self.error: BaseException | None = None
        self.children = ChildLeases(self.link, lambda: list_shards(fleet, StreamId("orders")), self._nothing)
        self.coordinator = LeaseCoordinator(
            streams=StreamDirectory(config, fleet, stream=StreamId("orders"), sleep=self.wait),  # type: ignore[arg-type]
            worker_id=name,
            config=config,
            store=self.link,
            kinesis=fleet,  # type: ignore[arg-type] - only list_shards is called
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
        """Spend time in a call: the world goes on, and so do this process's freezes and its death."""
        fleet = self.fleet
        if fleet.depth == 1:
            # A call returns only after the calls that began within it, so those take no time of their own: else
            # they would add up. Each call is the outer one often enough.
            fleet.run(fleet.now + seconds)
        while self.state != "dead" and fleet.now < self.thaw_at:
            fleet.run(self.thaw_at)
        if self.state == "dead":
            raise Gone

    def start(self) -> None:
        self._guard("tick", lambda: self.coordinator.start() or 0.0)
        if not self.coordinator._due:
            return  # the table could not be reached for longer than a start repeats its calls; see `_step`
        self._guard("tick", lambda: self.coordinator.tick(self.monotonic()))
        self._guard("renew", lambda: self.coordinator.renew(self.monotonic()))

    def _guard(self, loop: str, step: Callable[[], float]) -> None:
        """Run a step of a loop unless it is still in a call, then come back when it is due."""
        if self.state == "dead" or loop in self._running:
            return
        self._running.add(loop)
        try:
            due = step()
            if loop == "renew" and self._again:
                self._again, due = False, self.monotonic()
        except Gone:
            return
        except AwsError as error:
            assert error.retryable
            due = self.monotonic() + 0.5
        finally:
            self._running.discard(loop)
        self.wake(loop, due)

    def wake(self, loop: str, due: float) -> None:
        fleet = self.fleet
        moment = max(fleet.now + 0.001, (due - self.offset) / self.rate)
        self._due[loop] = moment
        fleet.at(moment, lambda: self._step(loop, moment))

    def _step(self, loop: str, moment: float) -> None:
        if self.state == "dead" or self._due[loop] != moment:
            return
        if self.fleet.now < self.thaw_at:
            self.wake(loop, self.offset + self.thaw_at * self.rate)
            return
        if not self.coordinator._due:
            self.start()  # whoever runs it starts it again
            return
        body = self.coordinator.renew if loop == "renew" else self.coordinator.tick
        self._guard(loop, lambda: body(self.monotonic()))

    # What a shard consumer does

    def held(self, key: str) -> HeldLease | None:
        return self.coordinator.held._by_key.get(key)

    def on_lease_acquired(self, held: HeldLease) -> None:
        held._lock = OneAtATime(self.fleet)  # type: ignore[assignment]
        if self.fleet.rate is not None and self.measures:
            held.meter = Measured(self.fleet, held.key)  # type: ignore[assignment]
        self.wake("renew", self.monotonic())
        self._work(held, 0.3 + self.fleet.rng.random() * 2)

    def _work(self, held: HeldLease, pause: float) -> None:
        self.fleet.at(self.fleet.now + pause, lambda: self._consume(held))

    def _consume(self, held: HeldLease) -> None:
        """Checkpoint now and then, and end with the shard."""
        fleet = self.fleet
        if self.state == "dead" or held.gone is not None:
            return
        if fleet.now < self.thaw_at:
            self._work(held, self.thaw_at - fleet.now)
            return
        if not held.is_held(self.monotonic()):
            return  # the loop that renews finds out
        try:
            children = fleet.children_of(held.key)
            parents = [self.link._table.get(key) for key in held.lease.parent_shard_ids]
            if children and all(row is None or row.is_finished for row in parents):
                if self.children.create(held.key, children):
                    held.checkpoint(END)
                    held.mark_lost("finished")
                    self.coordinator.forget(held)
                    self.coordinator.request("scan")
                    self.wake("tick", self.monotonic())
                    return
            elif fleet.rng.random() < 0.3:
                position = held.lease.checkpoint
                sequence = 10**6 if position.is_sentinel else int(position.sequence_number) + 1
                asked = held.handoff_requester is not None
                held.checkpoint(ExtendedSequenceNumber(str(sequence)))
                if held.handoff_requester is not None and not asked:
                    self.on_handoff_requested(
                        held
                    )  # a checkpoint shows a request as well; a consumer looks at each step
        except (Gone, LeaseLostError):
            return
        except AwsError:
            pass
        self._work(held, 1 + fleet.rng.random() * 6)

    def on_handoff_requested(self, held: HeldLease) -> None:
        self.fleet.at(self.fleet.now + self.fleet.rng.random(), lambda: self._release(held))

    def _release(self, held: HeldLease) -> None:
        if self.state == "dead":
            return
        if self.fleet.now < self.thaw_at:
            self.fleet.at(self.thaw_at, lambda: self._release(held))
            return
        try:
            held.release()
        except (Gone, LeaseLostError):
            pass
        except AwsError:
            self.fleet.at(self.fleet.now + 0.5, lambda: self._release(held))
            return
        self.coordinator.forget(held)
        if held.handed_off_row is not None:
            self.wake("tick", self.monotonic())  # as the engine does

    # What happens to it

    def stop(self) -> None:
        """A clean stop: no more takes, every lease released; the process then is gone."""
        self.state = "stopping" if self.state == "live" else self.state
        self.coordinator.stop_taking()
        for held in self.coordinator.held:
            self._release(held)
        self.fleet.at(self.fleet.now + 5, self.crash)

    def crash(self) -> None:
        self.state = "dead"

    def freeze(self, seconds: float) -> None:
        self.thaw_at = max(self.thaw_at, self.fleet.now + seconds)

    def on_lease_lost(self, held: HeldLease) -> None:
        pass

    def on_streams_changed(self) -> None:
        pass

    def on_stream_unavailable(self, tracked: TrackedStream, error: KinesisSdkError) -> None:
        raise AssertionError(f"{tracked}: {error}")

    def busy_lease_keys(self) -> Collection[str]:
        return ()

    def on_fatal_error(self, error: BaseException) -> None:
        if self.state != "dead" and not isinstance(error, Gone):
            self.error = error
            raise error

    def renew_again(self) -> None:
        """Run the renewal loop again right after its current run."""
        self._again = True

    def _nothing(self) -> None:
        pass


class JavaProcess(Process):
    """A KCL 2.x worker: fixed-rate renewals without repetition, no handoffs, finished leases counted."""

    measures = False

    def __init__(self, fleet: FleetSimulator, name: str, config: ConsumerConfig) -> None:
        super().__init__(fleet, name, replace(config, lease_strategy=JavaKcl2Strategy()))
        self.kind = "kcl2"
        # It knows no markers: what it takes carries none of ours, so peers take from it plainly.
        self.link = JavaLink(self, fleet.table)
        self.coordinator._store = self.coordinator._handoffs._store = self.link


class JavaLink(Link):
    """Writes rows as Java does: without the attribute that says "ask me"."""

    def take(self, lease: Lease, owner: str) -> Any:
        return self._write(lambda: self._table.take(lease, owner))

    def _apply(self, call: Callable[[], Any]) -> Any:
        result = super()._apply(call)
        if isinstance(result, Lease) and result.handoff_owner == self._process.name:
            self._table._set(result.lease_key, handoff_owner=None)
        return result


@dataclass
class FleetSimulator:
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
        self.now = 0.0
        self.faults = Faults()
        self.table = Table(self)
        self.rates: dict[str, float] = {}
        self.processes: list[Process] = []
        self.shards: dict[str, dict[str, Any]] = {}
        self.closed: set[str] = set()
        random.seed(self.seed)  # the pauses between repeated calls come from the module's generator
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.depth = 0
        self.meta = None
        size = (MAX_HASH_KEY + 1) // self.shards_at_start
        for n in range(self.shards_at_start):
            end = MAX_HASH_KEY if n == self.shards_at_start - 1 else (n + 1) * size - 1
            self._add_shard(n * size, end)

    # Time

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._heap, (moment, self._number, action))

    def run(self, until: float) -> None:
        """Let time pass; called from within calls as well, so it nests."""
        heap = self._heap
        self.depth += 1
        try:
            while heap and heap[0][0] <= until:
                moment, _, action = heappop(heap)
                self.now = max(self.now, moment)
                action()
        finally:
            self.depth -= 1
        self.now = max(self.now, until)

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
        if (
            "ShardFilter" in request
        ):  # at TRIM_HORIZON only what has no parents, as long as nothing is trimmed
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

    def add(self, name: str, *, config: ConsumerConfig | None = None, java: bool = False) -> Process:
        kind = JavaProcess if java else Process
        process = kind(self, name, config or self.config)
        self.processes.append(process)
        self.at(self.now, process.start)
        return process

    @property
    def live(self) -> list[Process]:
        return [process for process in self.processes if process.state == "live"]

    @property
    def java(self) -> list[Process]:
        return [process for process in self.live if isinstance(process, JavaProcess)]

    # What must be true in the end

    def leases(self) -> list[Lease]:
        return [lease for lease in self.table.list() if not lease.is_finished]

    def load(self) -> dict[str, int]:
        counts = Counter(lease.owner for lease in self.leases() if lease.owner)
        return {process.name: counts[process.name] for process in self.live}

    def settled(self) -> str | None:
        """None if everything is owned, held and balanced; else what is not."""
        leases = self.leases()
        live = {process.name: process for process in self.live}
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
        if not self.java:
            weights = weights_of(leases)
            return unfair(self.load()) if weights is None else uneven(self, weights)
        # The KCL's worker does not take a lease for the sake of its group; and it counts finished leases as work, so
        # that a fleet of nothing else need not even be level.
        load = self.load()
        level = len(self.java) == len(live) or max(load.values()) - min(load.values()) <= 1
        return None if level else f"spread over workers: {load}"

    def believers(self) -> dict[str, list[str]]:
        result: dict[str, list[str]] = {}
        for process in self.processes:
            if process.state != "dead" and self.now >= process.thaw_at:
                for held in process.coordinator.held:
                    if held.is_held(process.monotonic()):
                        result.setdefault(held.key, []).append(process.name)
        return result


def unfair(load: dict[str, int], separator: str = "|") -> str | None:
    """None if no worker and no group has a share that rounding alone would not give it."""
    total, workers = sum(load.values()), len(load)
    if max(load.values()) - min(load.values()) > 1:
        return f"spread over workers: {load}"
    members: dict[str, list[int]] = {}
    for name, count in load.items():
        members.setdefault(group_of(name, separator), []).append(count)
    for group, counts in members.items():
        share = total * len(counts) / workers
        if not share - 1 < sum(counts) < share + 1:
            return f"group {group or '-'} has {sum(counts)} instead of {share:.2f}"
    return None


def uneven(fleet: FleetSimulator, weights: Mapping[str, int]) -> str | None:
    """None if no group has a worker that is fuller than another by more than its lightest lease and the margin."""
    held: dict[str, list[int]] = {process.name: [] for process in fleet.live}
    for lease in fleet.leases():
        held[lease.owner or ""].append(weights[lease.lease_key])
    margin = MARGIN * sum(map(sum, held.values())) / len(held)
    groups: dict[str, list[list[int]]] = {}
    for name, mine in held.items():
        groups.setdefault(group_of(name), []).append(mine)
    for group, members in groups.items():
        fullest, emptiest = max(members, key=sum), min(members, key=sum)
        if fullest and sum(fullest) - sum(emptiest) > min(fullest) + margin:
            return f"spread in group {group or '-'}: {fullest} beside {emptiest}"
    return None
