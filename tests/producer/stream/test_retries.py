"""How long a record rests before it is tried again, and what its failed attempts cost."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ThrottledError, TransientAwsError
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.stream.retries import AttemptLog, Retries
from kinesis_sdk.testing import Fault
from tests.producer.simulation import Simulation
from tests.producer.support import make_record, together

ERROR = TransientAwsError("no", operation="PutRecords")


def failed(times: int) -> PendingRecord:
    record = make_record()
    for number in range(times):
        record.add_failed_attempt(float(number), float(number), "InternalFailure", "no")
    return record


def test_two_quick_retries_then_twice_as_long_each_time_up_to_a_second() -> None:
    retries = Retries(0.1)
    delays = [retries.delay(failed(times), 1_000.0, hurry=False) for times in range(1, 10)]
    assert delays == [0.05, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert [retries.backs_off(failed(times)) for times in range(1, 5)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("buffered_time", "hurry", "delay"), [(0.0, False, 0.02), (60.0, False, 30.0), (60.0, True, 0.1)]
)
def test_the_first_delay(buffered_time: float, hurry: bool, delay: float) -> None:
    assert Retries(buffered_time).delay(failed(1), 1_000.0, hurry=hurry) == delay


def test_further_retries_wait_no_less_than_the_first_where_records_are_buffered_for_long() -> None:
    retries = Retries(60.0)
    assert [retries.delay(failed(times), 1_000.0, hurry=False) for times in range(1, 6)] == [30.0] * 5
    simulation = Simulation(ProducerConfig(record_max_buffered_time=20.0, record_ttl=300.0), latency=0.001)
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure"))
    simulation.put_and_run("a", b"x")
    assert len(simulation.requests) < 50, "one in half the buffered time, not one a second"


@pytest.mark.parametrize("left", [0.001, 0.5, 1.0, 1.5])
def test_a_retry_comes_before_the_expiry(left: float) -> None:
    delay = Retries(60.0).delay(failed(1), left, hurry=False)
    assert 0 < delay < left


def test_records_come_back_in_the_order_of_their_deadlines() -> None:
    retries = Retries(0.1)
    assert retries.next_due == float("inf")
    records = [make_record() for _ in range(4)]
    entry = together(records)
    for record, until in zip(records, (3.0, 1.0, 2.0, 1.0), strict=True):
        retries.hold(record, entry, until)
    assert len(retries) == 4
    assert retries.next_due == 1.0
    assert list(retries.take_due(0.999)) == []
    assert list(retries.take_due(1.0)) == [(records[1], entry), (records[3], entry)]
    assert retries.next_due == 2.0
    retries.clear()
    assert list(retries.take_due(99.0)) == []


def test_records_of_one_answer_share_what_they_remember_of_it() -> None:
    log = AttemptLog()
    one, two, other = failed(1), failed(1), failed(1)
    log.note([one], 5.0, 6.0, "A", "said " * 2, ERROR)
    log.note([two], 5.0, 6.0, "A", "said " * 2, TransientAwsError("no", operation="PutRecords"))
    log.note([other], 5.0, 6.0, "B", "other", ThrottledError("other"))
    assert one.history is not None
    assert two.history is not None
    assert other.history is not None
    assert one.history[1] is two.history[1]
    assert one.last_error is two.last_error is ERROR
    assert other.history[1].code == "B"
    assert other.last_error is not ERROR
    log.note([one], 7.0, 8.0, "A", "said " * 2, ERROR)
    log.note([two], 7.0, 8.5, "A", "said " * 2, ERROR)
    assert (one.history[2].delay, one.history[2].duration) == (1.0, 1.0)
    assert two.history[2].duration == 1.5, "another answer"


def test_records_of_one_answer_share_the_text_of_its_code() -> None:
    # An answer of JSON has a string of its own for each of its entries.
    log = AttemptLog()
    one, two = make_record(), make_record()
    log.note([one], 5.0, 6.0, str(b"InternalFailure", "ascii"), "no", ERROR)
    log.note([two], 5.0, 6.0, str(b"InternalFailure", "ascii"), "no", ERROR)
    assert one.history is not None
    assert two.history is not None
    assert one.history[0].code is two.history[0].code


def test_a_record_that_failed_has_no_dict_of_its_own() -> None:
    # With Python 3.13 it would cost 300 bytes.
    assert vars(failed(3)).keys() <= {"deadline", "expires"}


def test_what_wakes_together_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 500
    simulation = Simulation(ProducerConfig(rate_limit=10_000), shards=1, latency=0.001, throttle=False)
    simulation.warm()
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure", count=3))
    for _ in range(count):
        simulation.put("k", b"x")
    looks = 0

    def counted(entry: Entry, record: PendingRecord) -> bool:
        nonlocal looks
        looks += 1
        return record._delivery.entry is entry

    monkeypatch.setattr(Entry, "owns", counted)
    simulation.run()
    assert {len(record.history or ()) for record in simulation.records[1:]} == {3}
    assert looks < 20 * count


def test_attempts_of_records_with_different_pasts_have_their_own_delays() -> None:
    log = AttemptLog()
    early, late = make_record(arrived=1.0), make_record(arrived=2.0)
    log.note([early, late], 5.0, 6.0, "A", "no", ERROR)
    assert early.history is not None
    assert late.history is not None
    assert (early.history[0].delay, late.history[0].delay) == (4.0, 3.0)


@pytest.mark.parametrize("aggregated", [True, False])
def test_what_fills_requests_at_once_is_not_sent_as_fast_as_it_is_refused(aggregated: bool) -> None:
    # A full aggregate or request leaves at once, whatever its deadline: retries would go round and round.
    config = ProducerConfig(
        aggregation_enabled=aggregated,
        aggregation_max_size=200,
        collection_max_count=5,
        record_ttl=5.0,
        rate_limit=10_000,
    )
    simulation = Simulation(config, latency=0.001, throttle=False)
    simulation.warm()
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure"))
    for number in range(100):
        simulation.put(f"k{number % 20}", b"x" * 60)
    simulation.finish()
    attempts = [len(record.history or ()) for record in simulation.records[1:]]
    assert min(attempts) >= 8
    assert max(attempts) <= 25
