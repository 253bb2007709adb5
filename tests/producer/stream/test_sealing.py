"""Sealing: nothing leaves before its size is exact, nothing is too large, and nothing else changes."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import codec as codecs
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.stream import send_queue
from kinesis_sdk.producer.stream.dispatch import NEVER
from kinesis_sdk.producer.stream.sealing import Sealing, SizeEstimate
from kinesis_sdk.producer.stream.topology import Topology
from tests.codecs import Deflated, Drawn, Identity
from tests.fuzz import how_many
from tests.producer.simulation import Simulation
from tests.producer.stream.schedules import check, drawn_limit, play
from tests.producer.support import make_entry

KIB, MIB = 1024, 1024 * 1024


class AtOnce(Sealing):
    """Takes no time, as if there were nothing to do."""

    __slots__ = ()

    def want(self, entry: Entry, limit: int) -> None:
        super().want(entry, limit)
        for (task,) in self.take():
            task.run()
            assert self.finish(task, limit)


def sent(simulation: Simulation) -> list[Any]:
    """What left, and when, in order."""
    requests = [
        [(item["size"], item["count"], item["entry"].shard_id) for item in request]
        for request in simulation.requests
    ]
    return [simulation.sent_at, requests, simulation.pipeline.counters]


@settings(max_examples=how_many(unit=6, fuzz=1_000))
@given(seed=st.integers(0, 2**63), ordered=st.booleans())
def test_a_codec_that_saves_nothing_changes_no_schedule(seed: int, ordered: bool) -> None:
    limit = None if ordered else drawn_limit(seed)
    plain = play(seed, ordered=ordered, limit=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send_queue, "Sealing", AtOnce)
        assert sent(play(seed, ordered=ordered, limit=limit, codec=Identity())) == sent(plain)


@settings(max_examples=how_many(unit=8, fuzz=2_000))
@given(seed=st.integers(0, 2**63), ordered=st.booleans())
def test_every_schedule_ends_well_whatever_the_sizes_are(seed: int, ordered: bool) -> None:
    rng = random.Random(f"sealing {seed}")
    codec = Drawn(seed, failing=lambda: rng.random() < 0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(codecs._made, codec.name, codec)
        patch.setattr(Topology, "record_limit", rng.choice([2_000, 20_000, MIB]))
        seconds = rng.choice([0.0, 0.001, 0.3, 2.0])
        simulation = play(seed, ordered=ordered, codec=codec, sealing_time=seconds)
        check(simulation)
        if ordered:
            simulation.check_order()


def sealed_by(
    codec: Deflated | Drawn | Identity, count: int, size: int = 4_000, **settings: Any
) -> Simulation:
    """A producer of many similar records, after it has learned its stream."""
    config = ProducerConfig(aggregation_max_size=size, record_max_buffered_time=0.05, **settings)
    simulation = Simulation(config, shards=1, codec=codec)
    simulation.put("k", b"first")
    simulation.run(until=0.5)
    for number in range(count):
        data = b'{"number": %d, "more": "the same for all"}' % number
        simulation.at(0.5 + number / 100_000, lambda d=data: simulation.put("k", d) and None)
    simulation.run()
    return simulation


@pytest.mark.parametrize("idempotent", [False, True])
def test_aggregates_grow_towards_their_sealed_size(monkeypatch: pytest.MonkeyPatch, idempotent: bool) -> None:
    monkeypatch.setitem(codecs._made, "deflated", Deflated())
    simulation = sealed_by(Deflated(), 4_000, idempotent=idempotent)
    check(simulation)
    counters, items = simulation.pipeline.counters, [item for r in simulation.requests for item in r]
    assert counters.kinesis_bytes_stored == sum(item["size"] + 1 for item in items)
    assert counters.user_bytes_stored > 5 * counters.kinesis_bytes_stored
    counts = [item["count"] for item in items][1:]
    assert counts[0] < 90, "the first one is packed as if nothing became smaller"
    assert all(after <= 5 * before for before, after in pairwise(counts))
    assert max(counts) > 500
    assert max(item["size"] for item in items) <= 4_000


def test_the_rate_limit_counts_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codecs._made, "deflated", Deflated())

    def took(codec: Deflated | None) -> float:
        simulation = Simulation(ProducerConfig(), shards=1, codec=codec)
        simulation.put("k", b"first")
        simulation.run(until=1)
        for number in range(250):
            simulation.put("k", b"%010d" % number * 1_000)
        simulation.run()
        return simulation.sent_at[-1] - 1

    assert took(None) > 0.8, "2.5 MB at 1.5 MB/s, behind 1 MiB that may leave at once"
    assert took(Deflated()) < 0.5


def test_results_come_within_a_tenth_of_the_time_without_sealing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codecs._made, "deflated", Deflated())

    def latencies(codec: Deflated | None) -> list[float]:
        # 3 ms are ten times what Zstandard needs for 100 KB.
        simulation = Simulation(ProducerConfig(), shards=2, codec=codec, sealing_time=0.003)
        simulation.put("k", b"first")
        simulation.run(until=0.5)
        found: list[float] = []

        def put() -> None:
            at = simulation.clock.monotonic()
            record = simulation.put(f"k{len(found) % 20}", b'{"more": "the same for all"}')
            record.add_done_callback(lambda _record: found.append(simulation.clock.monotonic() - at))

        for number in range(300):
            simulation.at(0.5 + number / 500, put)
        simulation.run()
        counters = simulation.pipeline.counters
        assert (counters.kinesis_bytes_stored < counters.user_bytes_stored) is (codec is not None)
        return sorted(found)

    plain, small = latencies(None), latencies(Deflated())
    for share in (0.5, 0.99):
        place = int(share * len(plain))
        assert small[place] < 1.1 * plain[place]


def test_sealed_forms_are_charged_until_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Drawn(1)
    monkeypatch.setattr(codec.rng, "choice", lambda _choices: 0.5)
    monkeypatch.setitem(codecs._made, codec.name, codec)
    simulation = Simulation(ProducerConfig(record_max_buffered_time=0.05), codec=codec, latency=1.0)
    simulation.put_and_run("k", b"first")
    for number in range(100):
        simulation.put("k", b"%0100d" % number)
    payloads = simulation.charged
    simulation.run(until=simulation.clock.monotonic() + 0.1)
    (entry,) = simulation.pipeline.pending.entries
    assert simulation.charged == payloads + entry.form.size > payloads + 5_000
    simulation.finish()


def test_small_aggregates_are_sealed_in_a_row_and_large_ones_by_a_thread_each() -> None:
    sealing = Sealing(Identity())
    for size in (50_000, 50_000, 30_000, 5_000, 150_000, 500):  # of each of two records
        sealing.want(make_entry(size, hash_keys=(1, 2)), MIB)
    assert [len(group) for group in sealing.take()] == [3, 1, 1, 1]
    assert sealing.take() == []


def test_what_turns_out_too_large_is_divided_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Drawn(1)
    ratios = iter([0.01, 0.01])
    monkeypatch.setattr(codec.rng, "choice", lambda _choices: next(ratios, 2.0))
    monkeypatch.setitem(codecs._made, codec.name, codec)
    monkeypatch.setattr(Topology, "record_limit", 4_001)
    simulation = sealed_by(codec, 2_000, ordering="per_shard")
    simulation.check()
    simulation.check_order()
    counts = [item["count"] for request in simulation.requests for item in request]
    assert max(map(len, codec.sealed.values())) > 12_000, "packed for a form that it did not get"
    assert max(counts) < 100


def learned(*pairs: tuple[int, int]) -> SizeEstimate:
    estimate = SizeEstimate()
    for inner, sealed in pairs:
        estimate.learn(inner, sealed)
    return estimate


def test_an_estimate_has_a_margin_and_bounds() -> None:
    assert SizeEstimate().inner_for(50 * KIB) == 50 * KIB, "nothing is known"
    once = learned((50 * KIB, 10 * KIB))
    assert 3.9 * 50 * KIB < once.inner_for(50 * KIB) <= 4 * 50 * KIB
    steady = learned(*[(250 * KIB, 50 * KIB)] * 40)
    assert 0.97 * 250 * KIB < steady.inner_for(50 * KIB) <= 250 * KIB
    uneven = learned(*[(250 * KIB, 50 * KIB), (250 * KIB, 100 * KIB)] * 20)
    assert uneven.inner_for(50 * KIB) < 250 * KIB * 5 / 8
    assert learned(*[(8 * MIB, 8 * KIB)] * 9).inner_for(MIB) == 8 * MIB
    assert learned(*[(10 * KIB, 20 * KIB)] * 9).inner_for(50 * KIB) == 50 * KIB, "never below the target"


def test_a_stream_that_saves_nothing_is_left_alone_and_tried_again_rarely() -> None:
    estimate = SizeEstimate()
    trials = []
    for number in range(20_000):
        if estimate.wants_trial():
            trials.append(number)
            estimate.learn(50 * KIB, 50 * KIB)
    assert trials[:8] == list(range(8))
    pauses = [after - before for before, after in pairwise(trials[7:])]
    assert pauses == [17, 33, 65, 129, 257, 513, 1025, 2049, 4097, 4097, 4097]
    assert estimate.inner_for(50 * KIB) == 50 * KIB
    estimate.learn(50 * KIB, 10 * KIB)
    assert estimate.is_worth_it
    assert estimate.wants_trial()


def test_a_producer_of_such_data_seals_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed: list[int] = []
    monkeypatch.setattr(Identity, "seal", lambda _self, body: sealed.append(len(body)) or body)
    simulation = sealed_by(Identity(), 700, size=400)
    check(simulation)
    aggregates = simulation.pipeline.counters.kinesis_records_stored
    assert (len(sealed), 90 < aggregates < 122) == (10, True)


def test_an_entry_waits_until_its_form_is_chosen() -> None:
    sealing = Sealing(Deflated())
    large, small = make_entry(5_000, hash_keys=(1, 2)), make_entry(100)
    for entry in (large, small, large):
        sealing.want(entry, MIB)
    assert (sealing.may_send(large, 1.0), sealing.may_send(small, 1.0)) == (NEVER, 1.0)
    ((task,),) = sealing.take()
    sealing.want(large, MIB)
    assert (sealing.has_waiting, sealing.outstanding) == (False, 1)
    task.run()
    assert sealing.finish(task, MIB)
    assert (sealing.may_send(large, 1.0), sealing.outstanding) == (1.0, 0)
    assert (large.form, small.form) == (task.result, small.aggregate)
    assert large.size == len(large.form.encode()) + 1 < 1_000
    sealing.want(large, MIB)
    assert not sealing.has_waiting, "what comes back is as it was"
