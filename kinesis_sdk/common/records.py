"""Records as readers see them: the Kinesis record that the service stores, and the user record inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from kinesis_sdk.common.headers import NO_HEADERS, shown_headers
from kinesis_sdk.common.sequence import ExtendedSequenceNumber, check_sequence_numbers


def without_payload(record: Any) -> str:
    """Return the ``repr`` of a named tuple with the lengths of its ``data`` and header values instead of their bytes.

    Records end up in logs and exception messages, but their payloads must not.
    """
    shown = []
    for name, value in zip(record._fields, record, strict=True):
        if name == "data":
            shown.append(f"{name}=<{len(value)} bytes>")
        elif name != "headers":
            shown.append(f"{name}={value!r}")
        elif value:
            shown.append(f"{name}={shown_headers(value)}")
    return f"{type(record).__name__}({', '.join(shown)})"


API_NAMES = {
    "data": "Data",
    "partition_key": "PartitionKey",
    "sequence_number": "SequenceNumber",
    "approximate_arrival_timestamp": "ApproximateArrivalTimestamp",
    "encryption_type": "EncryptionType",
}
"""Name in the API of each field of a `KinesisRecord`.

To add a field: add it here, to `KinesisRecord` and its `from_api`, to `UserRecord` at the same index, and to the decoders of
responses (``transport.decoding``, ``transport.typed_decoding`` and ``transport.cbor``). All code between them passes fields on by position.
`tests/common/test_records.py` fails for each of these places that you forget.
"""


class KinesisRecord(NamedTuple):
    """A record in the form that Kinesis stores; its data may be an aggregate of user records.

    Attributes:
        data: Payload; ``repr`` shows its length only.
        partition_key: Partition key of the Kinesis record (``a`` for an aggregate); empty if Kinesis sends none.
        sequence_number: Decimal sequence number, unique in the shard.
        approximate_arrival_timestamp: Time at which Kinesis accepted it (aware datetime, millisecond precision), or None.
        encryption_type: ``NONE``, ``KMS`` or None.
    """

    data: bytes
    partition_key: str
    sequence_number: str
    approximate_arrival_timestamp: datetime | None = None
    encryption_type: str | None = None

    def __repr__(self) -> str:
        return without_payload(self)

    @classmethod
    def from_api(cls, item: Mapping[str, Any]) -> KinesisRecord:
        """Read one element of ``Records`` of a GetRecords response.

        Raises:
            KeyError, AttributeError, ValueError: If it is incomplete, or its payload is not bytes.
        """
        data = item["Data"]
        if not isinstance(data, bytes):
            raise ValueError("Data is not bytes")  # noqa: TRY004 - as for its other parts, see `check_records`
        return cls(
            data,
            item.get("PartitionKey") or "",
            item["SequenceNumber"],
            item.get("ApproximateArrivalTimestamp"),
            item.get("EncryptionType"),
        )


def check_records(records: Sequence[KinesisRecord]) -> None:
    """Check the fields that all later code relies on: partition keys and sequence numbers of a response's records.

    Raises:
        ValueError: If a partition key is not text, or a sequence number is not decimal text.
    """
    # By columns and in C, because every record that is read pays for it.
    try:
        "".join([record[1] for record in records])
    except TypeError as error:
        raise ValueError("PartitionKey is not text") from error
    check_sequence_numbers([record[2] for record in records])


class UserRecord(NamedTuple):
    """A record in the form that its producer put.

    The fields of its Kinesis record come first, in the same order; `user_records` relies on this order.

    Attributes:
        data: Payload; ``repr`` shows its length only.
        partition_key: Partition key that the producer gave.
        sequence_number: Sequence number of its Kinesis record; all user records of an aggregate share it.
        approximate_arrival_timestamp: Time at which Kinesis accepted the Kinesis record, or None.
        encryption_type: ``NONE``, ``KMS`` or None.
        sub_sequence_number: Index in the aggregate from 0; 0 for a record that was not aggregated.
        explicit_hash_key: Explicit hash key that the producer gave; None if there was none, or if the record was not
            aggregated (Kinesis does not return it).
        aggregated: Whether it was in an aggregate.
        headers: Headers that the producer gave, values as bytes; empty without any. ``repr`` shows names and lengths only.
    """

    data: bytes
    partition_key: str
    sequence_number: str
    approximate_arrival_timestamp: datetime | None = None
    encryption_type: str | None = None
    sub_sequence_number: int = 0
    explicit_hash_key: str | None = None
    aggregated: bool = False
    headers: Mapping[str, bytes] = NO_HEADERS

    @property
    def id(self) -> str:
        """Identity of the record: stream, shard, sequence number and sub-sequence number as text, see `record_id`.

        The identity is the same in every worker, in Spark and in a Lambda function, and each time the record is read.

        Raises:
            ConsumerError: If the record was created without its shard, by `deaggregate` or by a program.
        """
        from kinesis_sdk.common.errors import ConsumerError  # the module of errors imports this one

        raise ConsumerError(
            "this record does not know its stream and shard, because no worker delivered it: use "
            "kinesis_sdk.record_id(stream, shard_id, record.sequence_number, record.sub_sequence_number)"
        )

    @property
    def value(self) -> Any:
        """The value that the deserializer decodes from ``data``, on first access; without a deserializer, ``data`` itself.

        Raises:
            DeserializationError: If the data cannot be decoded. In a handler, let it propagate: ``on_handler_error`` decides.
        """
        return self.data

    def __repr__(self) -> str:
        return without_payload(self)


def position_of(record: UserRecord) -> ExtendedSequenceNumber:
    """Return the position that means "every record up to this record, inclusive"."""
    return ExtendedSequenceNumber(record.sequence_number, record.sub_sequence_number)


class Attempt(NamedTuple):
    """An attempt to store a user record, with the fields that the KPL reports.

    Attributes:
        delay: Seconds in the buffer: from the arrival of the record (first attempt) or the end of the previous attempt to
            the start of this one.
        duration: Seconds from sending the request to its result; 0 if nothing was sent.
        code: Empty on success; otherwise the error code of Kinesis, the name of a transport error, ``Expired`` or ``Wrong Shard``.
        message: Error message of Kinesis; empty on success.
        success: Whether this attempt stored the record for every consumer.
    """

    delay: float
    duration: float
    code: str
    message: str
    success: bool
