"""A producer's pipeline in virtual time, against the fake service: every schedule replays exactly."""

from __future__ import annotations

import contextlib
import heapq
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from kinesis_sdk.common.aggregate_reader import deaggregate, decode, is_misplaced
from kinesis_sdk.common.codec import AggregateCodec
from kinesis_sdk.common.errors import KinesisSdkError, RecordFailedError, TransientAwsError
from kinesis_sdk.common.hashkeys import explicit_hash_key_to_bytes, hash_partition_key
from kinesis_sdk.common.headers import NO_HEADERS, encode_headers
from kinesis_sdk.common.once.identity import Identity
from kinesis_sdk.common.once.table import NAMED, REPEAT, TAG_KEY, decode_table, shard_checksum
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.shards import Shard, ShardMap, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.engine import Engine
from kinesis_sdk.producer.io.sender import load_facts, put_records, without_frames
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.stream.dispatch import NEVER, Returned
from kinesis_sdk.producer.stream.pending import Settled
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.producer.stream.sealing import SealTask
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.common import reference
from tests.producer.support import acknowledge, fail

STREAM = "orders"


class Balance:
    """A dispatch policy that allows everything and checks the rule: each entry that is sent comes back exactly once."""

    def __init__(self) -> None:
        self.out: set[Entry] = set()

    def may_send(self, entry: Entry, now: float) -> float:
        return now

    def on_sent(self, entry: Entry, now: float) -> None:
        assert entry not in self.out, "sent twice"
        self.out.add(entry)

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:
        assert entry in self.out, "came back without being sent, or twice"
        if how.is_final:
            self.out.remove(entry)

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        pass

    def forget(self, group: Group) -> None:
        pass

    @property
    def outstanding(self) -> int:
        return len(self.out)


class Copy(NamedTuple):
    """A user record in the stream, with what the table of runs says of it.

    Attributes:
        data: Its payload.
        valid: Whether all of its Kinesis record belongs into its shard.
        made_for_shard: Whether the table says that it was made for this shard.
        identity: Incarnation, date and number; None without a table.
        marked: Whether it is marked as a repetition.
        date: Date of its run (epoch seconds).
        holdoff: Hold-off of its run (seconds).
        arrived: When it arrived (epoch seconds).
    """

    data: bytes
    valid: bool
    made_for_shard: bool
    identity: tuple[bytes, int, int] | None
    marked: bool
    date: float
    holdoff: int
    arrived: float


def copies_of(record: KinesisRecord, shard: Shard) -> Iterator[Copy]:
    """Every user record in a Kinesis record, with what its table of runs says."""
    assert record.approximate_arrival_timestamp is not None
    arrived = record.approximate_arrival_timestamp.timestamp()
    if record.data[:4] != reference.MAGIC:
        yield Copy(record.data, True, False, None, False, 0.0, 0, arrived)
        return
    message = reference.AggregatedRecord.FromString(record.data[4:-16])
    values = [tag.value for tag in message.records[0].tags if tag.key == TAG_KEY]
    assert len(values) <= 1
    subs = decode(record.data)
    assert subs is not None
    table = decode_table(values[0], STREAM, len(subs)) if values else None
    valid = not is_misplaced(subs, shard.hash_key_range)
    if table is None:
        yield from (Copy(sub.data, valid, False, None, False, 0.0, 0, arrived) for sub in subs)
        return
    number = 0
    for run in table.runs:
        for offset, sub in enumerate(subs[number : number + run.count]):
            yield Copy(
                sub.data,
                valid,
                table.made_for == shard_checksum(shard.shard_id),
                (run.incarnation, 0 if run.flags & NAMED else run.date, run.number + offset),
                bool(run.flags & REPEAT),
                run.date / 1000,
                run.holdoff,
                arrived,
            )
        number += run.count


def read_stream(
    client: Any, stream: str = STREAM, advance: Callable[[float], None] = lambda _: None
) -> Iterator[tuple[Shard, list[KinesisRecord]]]:
    """Read every shard to its end, in id order. ``advance`` moves a clock on, to stay far from every read limit."""
    for shard in sorted(list_shards(client, StreamId(stream)), key=lambda s: s.shard_id):
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            advance(6)
            page = client.get_records(ShardIterator=iterator)
            yield shard, [KinesisRecord.from_api(item) for item in page["Records"]]
            iterator = page.get("NextShardIterator")
            if not page["Records"] and page["MillisBehindLatest"] == 0:
                break


class Simulation:
    """Drives one pipeline of an engine, with a heap of events in place of threads and a network.

    Records take the engine's way in, which decides whether the I/O loop has to be woken. The pipeline is polled after every event all the same,
    so that no schedule depends on this decision, which `_checked_sleep` judges.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        shards: int = 2,
        seed: int = 0,
        latency: float = 0.01,
        throttle: bool = True,
        beside: Simulation | None = None,
        balanced: bool = True,
        entropy: Callable[[int], bytes] | None = None,
        codec: AggregateCodec | None = None,
        sealing_time: float = 0.0,
    ) -> None:
        """Make a producer, and the service that it talks to unless it shares that of another producer.

        ``balanced`` checks that what is sent comes back once, which takes some memory. ``entropy`` is by default another one for each producer.
        Sealing by ``codec`` takes up to ``sealing_time`` seconds.
        """
        self.clock = beside.clock if beside else VirtualClock()
        self.aws = beside.aws if beside else FakeAws(clock=self.clock, seed=seed, throttle=throttle)
        self.client = self.aws.client("kinesis")
        if beside is None:
            self.client.create_stream(StreamName=STREAM, ShardCount=shards)
        self.rng = random.Random(seed)
        self.config = config or ProducerConfig()
        self.stream = StreamId(STREAM)
        self.pipeline = StreamPipeline(
            self.stream,
            self.config,
            self.rng,
            wall_clock=self.clock.time,
            entropy=entropy or random.Random(f"identities {seed} {beside is None}").randbytes,
            codec=codec,
        )
        self.sealing_time = sealing_time
        # What is closed by an estimate may miss its target, but never the limit.
        self.largest_aggregate = (
            self.config.aggregation_max_size if codec is None else self.pipeline.topology.record_limit
        )
        self.sealing_rng = random.Random(f"sealing {seed}")
        engine = self.engine = Engine(self.client, self.config, self.clock, self.rng)
        self.usage, self.loop, self.shared = engine._usage, engine._loop, engine._shared
        self.usage.max_bytes = 2**62  # room is not simulated
        self.loop._thread = threading.current_thread()  # it runs, so that the engine starts none
        self.shared.agenda.enter(self.pipeline)
        if balanced:
            self.pipeline.queue.policies += (Balance(),)
        self.latency = latency
        self.requests_of: Counter[str] = Counter()  # in flight, by predicted shard
        self.requests: list[list[dict[str, Any]]] = []
        self.sent_at: list[float] = []
        self.settlements: dict[int, int] = {}
        self.records: list[PendingRecord] = []
        self.payloads: list[bytes] = []  # records release their data with their result
        self.headers: list[Mapping[str, bytes]] = []
        self.headed: random.Random | None = None  # draws headers for most of the records
        self.most_charged = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.down = False
        self.recreated = False
        self.stalls = 0.0
        self.attempts: Counter[int] = Counter()  # of each record, by its id
        self.resumed: list[PendingRecord] = []  # put again after another producer had tried
        self.service_placed = False  # whether the stream places records itself, at least for a while
        self.exactly_once = False  # whether nothing is planned that makes duplicates inevitable
        # Called with a record and its error before it gets its result, like the hook of a producer.
        self.on_failed: Callable[[PendingRecord, BaseException], None] = lambda _record, _error: None

    # -------------------------------------------------------------- what tests schedule

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, action))

    def put(
        self,
        key: str,
        data: bytes,
        explicit: str | None = None,
        identity: Identity | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> PendingRecord:
        """Put a record; one without a partition key has the key ``""``, as in `Producer`."""
        hash_key = explicit_hash_key_to_bytes(explicit) if explicit is not None else hash_partition_key(key)
        if headers is None:
            headers = NO_HEADERS if self.headed is None else drawn_headers(self.headed)
        if identity is None and not headers:
            record = self.engine.accept(self.pipeline, key, explicit, data, hash_key, 0)
        else:
            record = PendingRecord()
            record.partition_key = key
            record.explicit_hash_key = explicit
            record._details = None
            record._listeners = None
            if identity is not None:
                record.identity = identity
            if headers:
                record.header_fields = encode_headers(headers)
            self.engine.accept_detailed(self.pipeline, record, data, hash_key, 0)
        self.headers.append(headers)
        self.records.append(record)
        self.payloads.append(data)
        return record

    def flush(self) -> None:
        self.pipeline.queue.flush(self.usage.end_epoch(), self.clock.monotonic())
        self._wake()

    @property
    def charged(self) -> int:
        """Bytes of records that the settlements have not given back, and of what is sealed."""
        return self.usage.bytes

    def warm(self) -> None:
        """Store a record, so that the map and the facts of the stream are known."""
        self.put_and_run("warm", b"up")

    def put_and_run(self, key: str, data: bytes, **more: Any) -> PendingRecord:
        """Put a record, and go on until nothing is left to do."""
        record = self.put(key, data, **more)
        self.run()
        return record

    def split(self) -> None:
        """Split the first shard in the middle of the space of hash keys."""
        self.client.split_shard(
            StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
        )

    def recreate(self, **settings: Any) -> None:
        """Delete the stream, and create another one of its name."""
        self.client.delete_stream(StreamName=STREAM)
        self.client.create_stream(StreamName=STREAM, **settings)

    def refuse(self, is_bad: Callable[[Sequence[Any]], bool]) -> None:
        """Let the service reject requests whose records are bad, as a whole."""
        put_records = self.client.put_records

        def choosy(**request: Any) -> Any:
            if is_bad(request["Records"]):
                error = {"Code": "ValidationException", "Message": "not to our taste"}
                raise ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}, "PutRecords")
            return put_records(**request)

        self.client.put_records = choosy

    # -------------------------------------------------------------- the loop

    def run(self, until: float | None = None, *, limit: int = 200_000) -> None:
        """Go on until nothing is left to do, or until a moment."""
        self._wake()  # the test may have done something
        for _ in range(limit):
            now = self.clock.monotonic()
            if self.turn(now):
                continue
            upcoming = self.upcoming(now)
            if upcoming == float("inf") or (until is not None and upcoming > until):
                if until is not None:
                    self.clock.advance_to(until)
                return
            self.clock.advance_to(upcoming)
        raise AssertionError("the simulation does not come to rest")

    def upcoming(self, now: float) -> float:
        """When something happens next."""
        due = self.shared.sleeping_until = self.loop._put_back(self.pipeline, now)
        assert due > now, "the pipeline asks to be polled now but has nothing to do: a busy loop"
        return min(due, self._events[0][0]) if self._events else due

    def turn(self, now: float) -> bool:
        """Do what is due; whether there was anything."""
        progressed = False
        if self.shared.sleeping_until <= now:
            self._wake()
            progressed = self._poll(now)
        if not self._events or self._events[0][0] > now:
            return progressed
        with self._checked_sleep(now):
            while self._events and self._events[0][0] <= now:
                heapq.heappop(self._events)[2]()
        self._wake()
        return True

    def _wake(self) -> None:
        self.shared.sleeping_until = -NEVER

    @contextlib.contextmanager
    def _checked_sleep(self, now: float) -> Iterator[None]:
        """Check that the loop is woken from its sleep if what happens meanwhile brings work that is due before its end.

        The next event is also compared with what it was just before. It may have come nearer since the loop fell asleep, without any news: while a
        shard's rate recovers from a cut, each look finds its tokens there a little earlier, and the shortest wait for tokens is a microsecond.
        """
        if self.shared.sleeping_until <= now:
            yield
            return
        queue, slots = self.pipeline.queue, self.config.max_connections - self.loop._in_flight
        before = queue.next_event(now, slots)
        yield
        end = min(before, self.shared.sleeping_until)
        if end > now and queue.next_event(now, slots) < end:
            # Not by what may be left of Kinesis records that are gone: the loop would find nothing to do then.
            aggregator, collector = queue.aggregator, queue._collector
            aggregator._earliest = min([e.deadline for e in aggregator._open_bins.values()], default=NEVER)
            collector._next_expiry = min([entry.expires for entry in collector._entries], default=NEVER)
            assert queue.next_event(now, slots) >= end, "the loop sleeps too long"

    def _poll(self, now: float) -> bool:
        """Do what the pipeline has to do; whether there was anything."""
        progressed = False
        for batch in self.pipeline.queue.poll(now, self.config.max_connections - self.loop._in_flight):
            progressed = True
            self.loop._in_flight += 1
            batch.started = now
            self._send(batch)
        for tasks in self.pipeline.queue.take_unsealed():
            progressed = True
            self._seal(tasks)
        if self.pipeline.pending.entries and self.pipeline.topology.wants_load(now):
            progressed = True
            self.pipeline.topology.begin_load(now)
            self._load()
        return self._settle() or progressed

    def _seal(self, tasks: Sequence[SealTask]) -> None:
        for task in tasks:
            task.run()

        def come_back() -> None:
            self.pipeline.queue.seals_ended(tasks, self.clock.monotonic())
            self._come_back()

        if self.sealing_time:
            self.at(self.clock.monotonic() + self.sealing_time * self.sealing_rng.random(), come_back)
        else:
            come_back()

    def _delay(self) -> float:
        return self.latency * self.rng.uniform(0.2, 1.0)

    def _send(self, batch: Any) -> None:
        outcome: dict[str, Any] = {}
        shards = {entry.shard_id for entry in batch.entries if entry.shard_id is not None}
        self.requests_of.update(shards)
        limit = 1 if self.config.ordering == "per_shard" else self.config.max_inflight_requests_per_shard
        assert limit is None or all(self.requests_of[shard] <= limit for shard in shards)
        # The service stores the records, and its answer takes longer than anybody waits for it.
        stalled = self.stalls > 0 and self.rng.random() < self.stalls

        def arrive() -> None:
            self.requests.append(
                [{"size": len(e.form.encode()), "count": len(e.records), "entry": e} for e in batch.entries]
            )
            self.sent_at.append(self.clock.monotonic())
            if self.config.idempotent:
                self.check_attempt(batch.entries)
            try:
                if self.down:
                    raise ConnectionRefusedError("nobody listens")
                outcome["response"] = put_records(self.client, self.stream, batch)
                if stalled:
                    outcome["error"] = TransientAwsError("timed out", operation="PutRecords")
            except KinesisSdkError as error:
                outcome["error"] = without_frames(error)
            except ConnectionRefusedError as error:
                from kinesis_sdk.common.errors import EndpointUnreachableError

                outcome["error"] = EndpointUnreachableError(str(error), operation="PutRecords")

        def come_back() -> None:
            self.loop._in_flight -= 1
            self.requests_of.subtract(shards)
            now = self.clock.monotonic()
            if "error" in outcome:
                self.pipeline.responses.on_failure(batch, outcome["error"], now)
            else:
                self.pipeline.responses.on_response(batch, outcome["response"], now)
            self._come_back()
            # Here and not in each turn, because it looks at every record, and a book that is wrong stays wrong.
            if len(self.pipeline.pending.entries) <= 100:
                assert self.pipeline.pending_count == len(self.pipeline.pending.live)

        there = self.clock.monotonic() + self._delay()
        self.at(there, arrive)
        self.at(there + (self.config.request_timeout if stalled else self._delay()), come_back)

    def _load(self) -> None:
        outcome: dict[str, Any] = {}

        def arrive() -> None:
            try:
                if self.down:
                    from kinesis_sdk.common.errors import EndpointUnreachableError

                    raise EndpointUnreachableError(
                        "nobody listens", operation="ListShards", endpoint="http://x"
                    )
                outcome["facts"] = load_facts(
                    self.client, self.stream, describe=self.pipeline.topology.describing
                )
            except KinesisSdkError as error:
                outcome["error"] = error

        def come_back() -> None:
            now = self.clock.monotonic()
            if "facts" in outcome:
                try:
                    self.pipeline.on_facts(outcome["facts"], now)
                except KinesisSdkError as error:
                    self.pipeline.responses.on_facts_failed(error, now)
            else:
                self.pipeline.responses.on_facts_failed(outcome["error"], now)
            self._come_back()

        there = self.clock.monotonic() + self._delay()
        self.at(there, arrive)
        self.at(there + self._delay(), come_back)

    def _come_back(self) -> None:
        """Go on after a call, or after the work of another thread."""
        self._wake()
        self._settle()

    def _settle(self) -> bool:
        self.usage.bytes += self.pipeline.pending.take_newly_held()
        self.most_charged = max(self.most_charged, self.charged)
        settled: list[Settled] = self.pipeline.pending.take_settled()
        for item in settled:
            self.usage.release(item)
            for record in item.records:
                self.settlements[id(record)] = self.settlements.get(id(record), 0) + 1
            if item.stored is not None:
                assert item.entry is not None
                acknowledge(item.entry, item.stored)
            else:
                assert item.error is not None
                for record in item.records:
                    self.on_failed(record, item.error)
                    fail(record, item.error)
        return bool(settled)

    # -------------------------------------------------------------- what tests check

    def stored(self, *, like_a_kcl: bool = True) -> list[UserRecord]:
        """Every user record that a consumer sees, shard by shard in id order.

        Args:
            like_a_kcl: Discard aggregates whose hash keys leave the shard's range.
        """
        result: list[UserRecord] = []
        for shard, records in read_stream(self.client, advance=self.clock.advance):
            result.extend(
                deaggregate(
                    records,
                    hash_key_range=shard.hash_key_range,
                    on_misplaced=(lambda _record, _count: True) if like_a_kcl else None,
                )
            )
        return result

    def check(self) -> None:
        """The invariants of every schedule; call when it came to rest."""
        for record in self.records:
            assert self.settlements.get(id(record), 0) == 1, "every record has exactly one final result"
            assert record.done()
        assert not self.pipeline.pending.entries
        assert self.usage.bytes == self.usage.count == 0, "what was charged was given back"
        assert not any(record.header_fields for record in self.records), "released with the result"
        pipeline = self.pipeline
        assert pipeline.queue.is_idle, "nothing is left behind: closed, collected or sent"
        assert not pipeline.responses.deferred
        assert pipeline.queue.aggregator.next_deadline == float("inf")
        assert not pipeline.queue.is_backing_off
        for policy in (*pipeline.queue.policies, pipeline.queue.pause):
            assert policy.outstanding == 0, "every entry that was sent came back"
        for request in self.requests:
            assert 1 <= len(request) <= 500
            assert sum(item["entry"].size for item in request) <= 10 * 1024 * 1024
            for item in request:
                assert item["count"] == 1 or item["size"] <= self.largest_aggregate
                assert item["size"] == item["entry"].form.size, "what was counted is what is sent"
                assert not self.exactly_once or item["entry"].size <= 1024 * 1024
        self.aws.faults.clear()
        if self.recreated:
            return  # what was stored in the stream that is gone can not be looked up
        seen: dict[bytes, int] = {}
        places: set[tuple[str, int, bytes]] = set()
        expected = dict(zip(self.payloads, self.headers, strict=True))
        for user_record in self.stored():
            seen[user_record.data] = seen.get(user_record.data, 0) + 1
            assert user_record.headers == expected.get(user_record.data, {})
            places.add((user_record.sequence_number, user_record.sub_sequence_number, user_record.data))
        for record, data in zip(self.records, self.payloads, strict=True):
            if record.exception() is None:
                result = record.result()
                assert (result.sequence_number, result.sub_sequence_number, data) in places, (
                    "an acknowledged record is where its result says, and no KCL drops it"
                )
                assert result.attempts[-1].success
        if self.exactly_once:
            acknowledged = [
                data
                for record, data in zip(self.records, self.payloads, strict=True)
                if record.exception() is None
            ]
            assert seen == dict.fromkeys(acknowledged, 1), (
                "acknowledged is what a KCL delivers, and nothing that every consumer accepts was sent again"
            )

    def copies(self) -> list[Copy]:
        """Every user record in the stream with what its table of runs says of it, shard by shard in id order."""
        return [
            copy
            for shard, records in read_stream(self.client, advance=self.clock.advance)
            for record in records
            for copy in copies_of(record, shard)
        ]

    def check_attempt(self, entries: list[Entry]) -> None:
        """What holds for each Kinesis record of an idempotent producer when it leaves."""
        now = self.clock.time()
        for entry in entries:
            if not entry.aggregate.tagged:
                assert self.pipeline.topology.service_places
                continue
            assert entry.aggregate.runs is not None
            table = decode_table(entry.aggregate.runs.tag, STREAM, entry.aggregate.count)
            assert table is not None
            assert entry.shard_id is not None
            assert table.made_for == shard_checksum(entry.shard_id)
            number = 0
            for run in table.runs:
                assert run.date <= now * 1000, "dated before it is sent"
                for record in entry.records[number : number + run.count]:
                    marked = bool(run.flags & REPEAT)
                    assert not marked or self.attempts[id(record)] or record in self.resumed, (
                        "marked without an earlier attempt"
                    )
                    if marked and not run.flags & NAMED:
                        assert now * 1000 >= run.date + run.holdoff * 1000, (
                            "sent again before its hold-off has passed"
                        )
                    self.attempts[id(record)] += 1
                number += run.count

    def check_identities(self) -> None:
        """What an idempotent producer promises its readers; call when it came to rest, after `check`."""
        if self.recreated:
            return
        copies = self.copies()
        puts: dict[bytes, list[Copy]] = {data: [] for data in self.payloads}
        owners: dict[tuple[bytes, int, int], bytes] = {}
        for copy in copies:
            if copy.identity is None:
                assert self.service_placed, (
                    "only a stream that places records itself gets any without an identity"
                )
                continue
            if not copy.valid:
                assert not copy.made_for_shard, (
                    "readers see by the shard that an aggregate was made for that it is misplaced"
                )
                continue
            puts[copy.data].append(copy)
            assert owners.setdefault(copy.identity, copy.data) == copy.data, "two records with one identity"
        anew = self.pipeline.counters.begun_anew_records
        for record, data in zip(self.records, self.payloads, strict=True):
            found = puts[data]
            if not anew:
                assert len({copy.identity for copy in found}) <= 1, "two identities for one put"
            for identity in {copy.identity for copy in found}:
                same = [copy for copy in found if copy.identity == identity]
                assert sum(not copy.marked for copy in same) <= 1, "a repetition without a mark"
                first = min(copy.arrived for copy in same)
                for copy in same:
                    assert copy.arrived >= copy.date
                    if copy.marked and copy.arrived > first:
                        assert copy.arrived >= copy.date + copy.holdoff, "a repetition within the hold-off"
            error = record.exception()
            if error is None:
                assert found or self.service_placed, "acknowledged without a valid copy"
            else:
                assert isinstance(error, RecordFailedError)
                if found:
                    assert error.maybe_stored or self.service_placed, "stored, and its failure denies it"

    def finish(self, *, delivered: bool = False) -> None:
        """Go on until nothing is left to do, and check all that holds then; with ``delivered``, that nothing failed."""
        self.run()
        self.check()
        if delivered:
            assert all(record.exception() is None for record in self.records)
        if self.config.ordering == "per_shard":
            self.check_order()
        if self.config.idempotent:
            self.check_identities()

    def check_order(self) -> None:
        """What ordered mode promises, by what a KCL delivers; call after `check`."""
        rank: dict[bytes, int] = {data: number for number, data in enumerate(self.payloads)}
        first: dict[str, dict[bytes, tuple[int, int]]] = {}
        for seen in self.stored():
            position = (int(seen.sequence_number), seen.sub_sequence_number)
            known = first.setdefault(seen.partition_key, {}).get(seen.data)
            if known is None or position < known:
                first[seen.partition_key][seen.data] = position
        for key, positions in first.items():
            in_stream = sorted(positions, key=lambda data: positions[data])
            assert in_stream == sorted(in_stream, key=lambda data: rank[data]), f"order of {key}"
        if self.recreated:
            return  # positions in two streams of one name cannot be compared
        newest: dict[str, tuple[int, int]] = {}
        for record in self.records:
            if record.exception() is None:
                result = record.result()
                position = (int(result.sequence_number), result.sub_sequence_number)
                assert position > newest.get(record.partition_key, (0, 0)), "acknowledged positions rise"
                newest[record.partition_key] = position


def drawn_headers(rng: random.Random) -> dict[str, bytes]:
    """Headers of a record: none, those of many others, or some of its own."""
    return rng.choice(
        [
            {},
            {"tenant": b"acme"},
            {"traceparent": b"00-%032x-01" % rng.getrandbits(128)},
            {"bin": rng.randbytes(rng.choice([0, 3, 300])), "tenant": b"acme"},
        ]
    )


def run_together(simulations: list[Simulation], until: float) -> None:
    """Run producers that share a service, up to a moment. Each has its turn only when something of its own is due."""
    clock = simulations[0].clock
    due = [clock.monotonic()] * len(simulations)
    while (now := clock.monotonic()) < until:
        for place, simulation in enumerate(simulations):
            if due[place] <= now:
                while simulation.turn(now):
                    """Go on until nothing is due."""
                due[place] = simulation.upcoming(now)
        clock.advance_to(min(until, *due))
