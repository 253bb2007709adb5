"""The end of one shard at a worker's ``until``."""

from __future__ import annotations

import logging
from datetime import datetime, timezone

from kinesis_sdk.common.errors import TransientAwsError
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.consumer.fetch import FetchResult
from kinesis_sdk.consumer.leases.table.lease import ProcessedUntil
from kinesis_sdk.consumer.shard.state import ShardState, ShutdownReason
from kinesis_sdk.consumer.until import Until
from tests.consumer.leases.held_lease import at
from tests.consumer.shard.consumer_scene import CHILD, Scene

UNTIL = Until(100_000)


def arrived(*seconds: float) -> list[KinesisRecord]:
    return [
        KinesisRecord(b"%d" % number, "k", str(number), datetime.fromtimestamp(second, timezone.utc))
        for number, second in enumerate(seconds, 1)
    ]


def response(*seconds: float, service_time=0.0, behind=0, pushed=False, on_done=lambda: None, **header):
    return FetchResult(
        records=arrived(*seconds),
        header=ResponseHeader(millis_behind_latest=behind, service_time=service_time, **header),
        pushed=pushed,
        on_done=on_done,
    )


def until_scene(*results, handler=None, **more) -> Scene:
    scene = Scene(*results, handler=handler, **more)
    restart(scene)
    return scene


def restart(scene: Scene) -> None:
    scene.use(scene.handler, until=UNTIL)


def test_delivery_stops_before_the_first_record_at_the_moment():
    returned = []
    scene = until_scene(response(98, 99, 100, 99, 101, on_done=lambda: returned.append(1)))
    assert scene.run() is None
    assert scene.delivered == [b"1", b"2"]
    assert scene.consumer.reason is ShutdownReason.UNTIL
    assert (scene.row.checkpoint, scene.row.owner) == (at(2), None)
    assert scene.row.processed_until == ProcessedUntil(100_000, at(2))
    assert scene.script.closed
    assert returned == [1], "the memory of the whole response is returned"


def test_the_end_of_the_shard_does_not_count_if_records_before_it_come_later():
    scene = until_scene(response(98, 100, ended=True, child_shards=(CHILD,)))
    assert scene.run() is None
    assert scene.consumer.reason is ShutdownReason.UNTIL
    assert not scene.row.is_finished
    assert scene.store.get("c") is None


def test_the_end_of_the_shard_counts_if_all_records_came_before():
    scene = until_scene(response(98, 99, ended=True, child_shards=(CHILD,)))
    assert scene.run() is None
    assert scene.row.is_finished
    assert scene.store.get("c") is not None


def test_a_fan_out_event_is_no_proof_so_the_end_is_polled():
    """An event may have waited in a buffer since before the moment."""
    scene = until_scene(
        response(98, service_time=99.0, pushed=True),
        response(service_time=103.0, pushed=True),
        response(99, service_time=104.0),
    )
    scene.run(0.5)
    assert scene.polled is False
    assert scene.run() is None
    assert scene.polled is True
    assert str(scene.opened[-1]) == "AFTER_SEQUENCE_NUMBER 1"
    assert scene.delivered == [b"1", b"1"]
    assert scene.row.was_processed_until(100_000)


def test_a_restarted_read_forgets_that_it_had_found_the_moment():
    scene = until_scene(response(98), response(99), response(99.5, 100))
    scene.run(0.5)
    reader = scene.consumer._reader
    reader._found_until = True  # of a response that was dropped before it was taken
    scene.consumer.restart_read()
    scene.run()
    assert scene.consumer.state is ShardState.COMPLETE
    assert scene.delivered == [b"1", b"1", b"1"]


def test_a_failed_mark_is_retried():
    scene = until_scene(response(98, 100))
    original, failures = scene.store.mark_processed, [1, 1]

    def mark_processed(lease, millis):
        if failures:
            failures.pop()
            raise TransientAwsError("down", operation="UpdateItem")
        return original(lease, millis)

    scene.store.mark_processed = mark_processed
    assert scene.run(20) is None
    assert not failures
    assert scene.row.was_processed_until(100_000)
    assert scene.delivered == [b"1"]


def test_a_stop_at_the_end_leaves_the_mark_to_the_next_owner():
    scene = Scene(response(98, 100))
    scene.handler = scene.recorder(fail={"shutdown_requested": 9})
    restart(scene)
    scene.run(0.1)
    scene.consumer.request_stop()
    assert scene.run() is None
    assert (scene.row.owner, scene.row.processed_until) == (None, None)


def test_lag_at_the_end_is_zero(caplog):
    caplog.set_level(logging.INFO)
    scene = Scene(response(98, 100, behind=5000))
    scene.handler = scene.recorder(fail={"shutdown_requested": 1})
    restart(scene)
    scene.run(0.1)
    assert scene.consumer.reason is ShutdownReason.UNTIL
    assert scene.consumer.progress.oldest_unprocessed_age(scene.clock.monotonic()) == 0.0
    scene.run()
    assert "1970-01-01T00:01:40.000+00:00, checkpoint 1/0" in caplog.text
