from __future__ import annotations

import pickle
from datetime import datetime, timezone

from kinesis_sdk.common.records import Attempt, KinesisRecord, UserRecord

ARRIVAL = datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_a_record_of_the_service() -> None:
    record = KinesisRecord.from_api(
        {
            "Data": b"x",
            "PartitionKey": "k",
            "SequenceNumber": "49",
            "ApproximateArrivalTimestamp": ARRIVAL,
            "EncryptionType": "KMS",
        }
    )
    assert record == KinesisRecord(b"x", "k", "49", ARRIVAL, "KMS")
    assert record.data == b"x"
    assert record.approximate_arrival_timestamp is ARRIVAL


def test_what_the_service_may_leave_out() -> None:
    assert KinesisRecord.from_api({"Data": b"", "SequenceNumber": "49"}) == KinesisRecord(
        b"", "", "49", None, None
    )


def test_records_cross_processes() -> None:
    for record in (
        KinesisRecord(b"x", "k", "49", ARRIVAL),
        UserRecord(b"x", "k", "49", 3, ARRIVAL, "5", True, None),
        Attempt(0.1, 0.2, "Expired", "m", False),
    ):
        again = pickle.loads(pickle.dumps(record))
        assert again == record
        assert type(again) is type(record)
