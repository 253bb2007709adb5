"""Reads at the tip, simulated with the policies alone: how late records are found, and how many reads it takes."""

from __future__ import annotations

import heapq
from random import Random

import pytest

from kinesis_sdk.consumer import RetrievalConfig
from kinesis_sdk.consumer.fetch import ReadRate, StreamTraffic, TipIdle
from kinesis_sdk.consumer.fetch.read_rate import spread_of

TIMES = RetrievalConfig().idle_times(billed=False)


class Shards:
    """Shards at their tips, read whenever they are due. `arrivals`: moment and shard of each record."""

    def __init__(self, count, arrivals, *, times=TIMES, hints=True, seed=1):
        traffic = StreamTraffic()
        self.idles = [
            TipIdle(*times, traffic if hints else StreamTraffic(), spread=spread_of(f"shardId-{one:012d}"))
            for one in range(count)
        ]
        self.rates = [ReadRate() for _ in range(count)]
        self.arrivals = [sorted(at for at, shard in arrivals if shard == one) for one in range(count)]
        self.reads = [[] for _ in range(count)]
        self.delays = []
        self.end = max(at for at, _ in arrivals) + 5
        rng = Random(seed)
        self.heap = [(rng.random() * times[2], one) for one in range(count)]
        for one, idle in enumerate(self.idles):
            idle.listen(lambda one=one: heapq.heappush(self.heap, (self.now, one)))
        self.now = 0.0
        heapq.heapify(self.heap)
        while self.heap:
            self.now, one = heapq.heappop(self.heap)
            if self.now < self.end:
                self.step(one)

    def step(self, one):
        due = max(self.idles[one].due, self.rates[one].ready_at)
        if due > self.now:
            if self.idles[one].due > float("-inf"):
                heapq.heappush(self.heap, (due, one))
            return
        if self.reads[one] and self.reads[one][-1] == self.now:
            return
        self.reads[one].append(self.now)
        self.rates[one].sent(self.now)
        found = [at for at in self.arrivals[one] if at <= self.now]
        self.arrivals[one] = self.arrivals[one][len(found) :]
        self.delays += [self.now - at for at in found]
        self.idles[one].read(self.now, len(found))
        heapq.heappush(self.heap, (max(self.idles[one].due, self.rates[one].ready_at), one))

    def percentile(self, share):
        return sorted(self.delays)[int(len(self.delays) * share)]

    @property
    def calls(self):
        return sum(map(len, self.reads))

    @property
    def most_in_a_second(self):
        return max(
            sum(1 for other in reads if at <= other < at + 0.999) for reads in self.reads for at in reads
        )


def steady(shards, *, seconds=30.0, pause=0.1):
    return [(10 + step * pause, step % shards) for step in range(int(seconds / pause))]


def bursts(shards, *, count=20, quiet=7.3):
    return [(10 + burst * quiet + step * 0.01, step % shards) for burst in range(count) for step in range(40)]


def sparse(shards, *, seconds=60.0):
    rng = Random(2)
    return [(10 + rng.random() * seconds, rng.randrange(shards)) for _ in range(int(seconds / 3))]


@pytest.mark.parametrize("arrivals", [steady, bursts, sparse])
@pytest.mark.parametrize("shards", [1, 8])
@pytest.mark.parametrize("times", [TIMES, (0.2, 0.2, 5.0)])
def test_no_record_waits_longer_than_the_pause_and_no_shard_is_read_too_often(arrivals, shards, times):
    found = Shards(shards, arrivals(shards), times=times)
    assert len(found.delays) == len(arrivals(shards))
    assert max(found.delays) <= times[2] + 1e-9
    assert found.most_in_a_second <= 5


def test_after_a_quiet_time_one_shard_tells_the_others():
    alone, told = (Shards(8, bursts(8), hints=hints) for hints in (False, True))
    assert alone.percentile(0.99) > 0.85
    assert told.percentile(0.99) < 0.55
    assert told.calls < 1.1 * alone.calls


def test_hints_make_long_pauses_of_many_shards_bearable():
    told = Shards(8, bursts(8), times=(1.0, 0.5, 5.0))
    often = Shards(8, bursts(8), hints=False)
    assert told.percentile(0.99) < 0.55
    assert told.calls < 0.85 * often.calls


def test_shards_that_have_nothing_in_common_soon_ignore_hints():
    alone, told = (Shards(8, sparse(8), hints=hints) for hints in (False, True))
    assert told.calls < 1.2 * alone.calls


def test_records_shrink_the_pause_at_once_and_silence_extends_it():
    idle = TipIdle(1.0, 0.25, 2.0)
    pauses = []
    now = 0.0
    for records in (0, 0, 0, 0, 3, 3, 0):
        idle.read(now, records)
        pauses.append(idle.pause)
        now = idle.due
    assert pauses == [1.25, 1.5625, 1.953125, 2.0, 0.25, 0.25, 0.3125]
    idle.behind()
    assert idle.due == float("-inf")
    assert idle.pause == 1.0


def test_a_hint_waits_for_the_minimum_and_a_vain_read_changes_no_due_time():
    traffic = StreamTraffic()
    idle, woken = TipIdle(1.0, 0.5, 1.0, traffic), []
    idle.listen(lambda: woken.append(idle.due))
    idle.read(0.0, 0)
    traffic.hint(0.2)
    assert woken == [0.5]
    idle.read(0.5, 0)
    assert idle.due == 1.0, "not later than without the hint"
    traffic.hint(1.1)  # within a second of the last one: it does not count
    assert traffic.hinted_at == 0.2
    idle.read(1.0, 0)
    traffic.hint(1.3)
    assert idle.due == 1.625, "deaf since 0.5, for one second"
    idle.close()
    idle.read(2.0, 0)
    traffic.hint(2.6)
    assert woken == [0.5]
