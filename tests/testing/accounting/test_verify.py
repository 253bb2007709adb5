"""The demo's judge must itself be able to say no."""

from __future__ import annotations

from kinesis_sdk.testing.accounting.verify import Delivery, Put, account_for, take_over_times, verify


def put(
    position: tuple[int, int] | None = (1, 0), *, key: str = "k", at: float = 0.0, attempts: int = 1
) -> Put:
    return Put(key, at, position, "s0", attempts, 0.1)


def seen(
    number: int,
    position: tuple[int, int],
    *,
    worker: str = "w1",
    at: float = 1.0,
    shard: str = "s0",
    acquisition: int = 0,
) -> Delivery:
    return Delivery(number, worker, shard, position, at, acquisition)


def test_everything_processed_once_is_clean() -> None:
    result = verify([put((1, 0)), put((1, 1))], [seen(0, (1, 0)), seen(1, (1, 1))], killed={})
    assert (result.lost, result.failed, result.delivered, result.duplicates) == ([], 0, 2, 0)
    assert result.out_of_order == result.unexplained == 0
    assert result.put_to_process == [1.0, 1.0]


def test_an_acknowledged_record_that_nobody_processed_is_lost() -> None:
    assert verify([put((1, 0)), put((2, 0))], [seen(0, (1, 0))], killed={}).lost == [1]


def test_a_failed_record_is_not_lost_but_counted() -> None:
    result = verify([put(None)], [], killed={})
    assert (result.lost, result.failed) == ([], 1)


def test_a_failed_record_may_turn_up_all_the_same() -> None:
    result = verify([put(None, attempts=2)], [seen(0, (1, 0))], killed={})
    assert (result.lost, result.failed, result.delivered) == ([], 1, 1)


def test_duplicates_need_a_reason() -> None:
    twice = [seen(0, (1, 0)), seen(0, (1, 0), at=2.0)]
    assert verify([put()], twice, killed={}).unexplained == 1
    moved = [seen(0, (1, 0)), seen(0, (1, 0), at=2.0, worker="w2")]
    assert verify([put()], moved, killed={}).explained == {"processed again after a lease moved": 1}
    assert verify([put()], moved, killed={"w1": 1.5}).explained == {
        "processed again after a worker was killed": 1
    }
    stored_twice = [seen(0, (1, 0)), seen(0, (9, 0), at=2.0)]
    assert verify([put()], stored_twice, killed={}).unexplained == 1, "it was put once and never retried"
    assert verify([put(attempts=2)], stored_twice, killed={}).explained == {"stored twice by a retry": 1}


def test_a_worker_may_repeat_itself_only_after_it_lost_the_lease() -> None:
    twice = [seen(0, (1, 0), acquisition=1), seen(0, (1, 0), at=2.0, acquisition=2)]
    explained = verify([put()], twice, killed={}, lost_leases={("w1", 1)})
    assert explained.explained == {"processed again after a lease was lost and taken again": 1}
    assert explained.unexplained == 0
    assert verify([put()], twice, killed={}).unexplained == 1, "the lease was never lost"
    assert verify([put()], twice, killed={}, lost_leases={("w2", 1)}).unexplained == 1, "another worker's was"
    assert verify([put()], twice, killed={}, lost_leases={("w1", 2)}).unexplained == 1, (
        "it was lost only later"
    )


def test_no_event_explains_a_repetition_under_one_lease() -> None:
    repeated = [
        seen(0, (1, 0), worker="w2", acquisition=1),
        seen(0, (1, 0), at=2.0, acquisition=7),
        seen(0, (1, 0), at=3.0, acquisition=7),
    ]
    result = verify([put()], repeated, killed={"w2": 1.5}, lost_leases={("w1", 7), ("w2", 1)})
    assert result.explained == {"processed again after a worker was killed": 1}
    assert result.without_reason == [repeated[2]]


def test_processing_against_the_order_of_the_stream_is_seen() -> None:
    puts = [put((1, 0)), put((2, 0)), put((3, 0), key="other")]
    good = [seen(0, (1, 0), at=1.0), seen(1, (2, 0), at=2.0), seen(2, (3, 0), at=0.5)]
    assert verify(puts, good, killed={}).out_of_order == 0
    bad = [seen(0, (1, 0), at=3.0), seen(1, (2, 0), at=2.0)]
    assert verify(puts, bad, killed={}).out_of_order == 1


def test_only_first_deliveries_count_for_order() -> None:
    puts = [put((1, 0)), put((2, 0))]
    replay = [
        seen(0, (1, 0), at=1.0),
        seen(1, (2, 0), at=2.0),
        seen(0, (1, 0), at=3.0, worker="w2"),
        seen(1, (2, 0), at=3.0, worker="w2"),
    ]
    assert verify(puts, replay, killed={"w1": 2.5}).out_of_order == 0


def test_records_stored_behind_later_puts_of_their_key_are_counted() -> None:
    puts = [put((5, 0), at=1), put((3, 0), at=2), put((6, 0), at=3), put((4, 0), key="other")]
    assert verify(puts, [], killed={}).overtaken == 1


def test_take_over_time_is_from_the_kill_to_the_first_record_of_another_worker() -> None:
    deliveries = [
        seen(0, (1, 0), worker="w1", at=1.0),
        seen(1, (2, 0), worker="w2", at=9.0),
        seen(2, (1, 0), worker="w2", at=2.0, shard="s1"),
        seen(3, (2, 0), worker="w2", at=6.0, shard="s1"),
    ]
    assert take_over_times(deliveries, killed={"w1": 5.0}) == {"s0": 4.0}


def test_what_nobody_put_is_named_and_judged_no_further() -> None:
    result = account_for({7: put()}, [seen(7, (1, 0)), seen(8, (2, 0))], explain=lambda *_: None)
    assert (result.unknown, result.delivered, result.lost) == ([8], 1, [])


def test_the_duplicate_without_a_reason_is_shown() -> None:
    first, second, third = (seen(7, (1, 0), at=at) for at in (1.0, 2.0, 3.0))
    result = account_for(
        {7: put()},
        [third, first, second],
        explain=lambda again, before, _: "because" if len(before) == 1 else None,
    )
    assert result.without_reason == [third]
    assert (result.explained, result.unexplained, result.duplicates) == ({"because": 1}, 1, 2)
