from __future__ import annotations

from pathlib import Path

from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.testing.accounting.delivery_log import DeliveryReader, DeliveryWriter
from kinesis_sdk.testing.flights import Flight, load_flights, make_payload, read_number

FLIGHT = Flight("LAX", b'{"delay":1,"origin":"LAX"}')


def record(number: int, sequence_number: str, sub: int, run: str = "run1") -> UserRecord:
    return UserRecord(make_payload(run, number, FLIGHT), "LAX", sequence_number, None, None, sub, None, True)


def test_flights_are_twenty_thousand_and_payloads_carry_their_number() -> None:
    flights = load_flights()
    assert len(flights) == 20_000
    assert len({flight.origin for flight in flights}) > 50
    payload = make_payload("run1", 17, flights[3])
    assert read_number(b"run1", payload) == 17
    assert read_number(b"run2", payload) is None
    assert payload.endswith(flights[3].line[1:])


def test_what_is_written_is_read_back_in_order_and_once(tmp_path: Path) -> None:
    writer = DeliveryWriter(tmp_path / "log", "run1")
    reader = DeliveryReader(tmp_path / "log", "w1")
    writer.batch(
        "s0",
        [record(5, "100", 2), record(6, "100", 3), record(7, "101", 0), record(8, "100", 0, "other")],
        acquisition=1,
    )
    first = list(reader.read())
    assert [(d.number, d.position, d.worker, d.shard_id, d.acquisition) for d in first] == [
        (5, (100, 2), "w1", "s0", 1),
        (6, (100, 3), "w1", "s0", 1),
        (7, (101, 0), "w1", "s0", 1),
    ]
    assert list(reader.read()) == []
    writer.leases(3)
    writer.lease_lost(1)
    writer.stalled(4.5)
    writer.stalled(2.5)
    writer.batch("s1", [record(9, "102", 0)], acquisition=2)
    assert [(d.number, d.acquisition) for d in reader.read()] == [(9, 2)]
    assert (reader.leases, reader.lost_leases, reader.longest_stall) == (3, {1}, 4.5)


def test_a_gap_inside_an_aggregate_keeps_its_positions(tmp_path: Path) -> None:
    writer = DeliveryWriter(tmp_path / "log", "run1")
    writer.batch("s0", [record(1, "7", 0), record(2, "7", 1, "other"), record(3, "7", 2)], acquisition=1)
    assert [d.position for d in DeliveryReader(tmp_path / "log", "w1").read()] == [(7, 0), (7, 2)]


def test_half_a_line_of_a_killed_worker_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = DeliveryWriter(path, "run1")
    writer.batch("s0", [record(1, "7", 0)], acquisition=1)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    reader = DeliveryReader(path, "w1")
    assert len(list(reader.read())) == 1
    path.write_bytes(whole + whole)
    assert len(list(reader.read())) == 1
