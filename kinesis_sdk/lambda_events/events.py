"""The event that a Kinesis event source mapping passes to a Lambda function, and the response to it.

An event holds Kinesis records of one shard, in order. Lambda does not open aggregates: it retries, skips or discards whole
Kinesis records, never a single user record inside one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kinesis_sdk.common.base64coding import decode
from kinesis_sdk.common.errors import InvalidEventError
from kinesis_sdk.common.record_ids import located_record_type
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.sequence import is_sequence_number
from kinesis_sdk.common.user_records import UserRecords
from kinesis_sdk.common.validation import check_bool, check_int, check_seconds
from kinesis_sdk.lambda_events.copies import LOOK_UP_BYTES, open_records

if TYPE_CHECKING:
    from kinesis_sdk.common.aws import KinesisClient

SOURCE = "aws:kinesis"


class Delivery(NamedTuple):
    """One Kinesis record of an event with its user records; for the stream of a table, a change is both carrier and only user record.

    Attributes:
        key: Stream ARN, shard id and sequence number as one text, which is the same in every event with this record.
        carrier: The Kinesis record.
        user_records: The user records of the aggregate, or the Kinesis record itself if it was not aggregated.
    """

    key: str
    carrier: KinesisRecord | UserRecord
    user_records: Sequence[UserRecord]


class OpenedEvent(Protocol):
    """Event of either source, in the form that a handler reads."""

    stream_arn: str

    @property
    def shard_id(self) -> str:
        """Shard of the records; empty if the event does not name it."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Delivery]: ...
    def success(self) -> dict[str, Any]:
        """Return the response that reports every record as processed."""

    def failure_at(self, record: UserRecord | KinesisRecord) -> dict[str, Any]:
        """Return the response that makes Lambda deliver the rest of the event again, from ``record`` on."""


class KinesisEvent:
    """A Kinesis event of Lambda, opened.

    This class is for functions that process a whole batch at once, or that have tumbling windows; `kinesis_handler` is simpler.

        opened = KinesisEvent(event)
        for record in opened.user_records:
            ...
        return opened.failure_at(record)    # or opened.success()

    Args:
        event: The event that Lambda passes.
        look_up: boto3 client of Kinesis that searches the stream for earlier copies of records from idempotent producers;
            see docs/lambda.md. The default None drops only records that occur twice in the event. Calls are made when
            the user records are first read, and raise `AwsError` if they keep failing.
        look_up_bytes: Maximum bytes that the look-ups of the event read, 0 to 1 TiB. Beyond this limit, possible repetitions are
            delivered, with a warning.
        look_up_seconds: Maximum seconds that these calls take together, 0 to 900; a running call is not interrupted. Beyond this limit,
            possible repetitions are also delivered, unless calls failed for a reason other than throttling; then their error is raised.
            The default
            None retries each call for a minute.
        recognize: Whether repetitions of idempotent producers are left out. False returns every stored copy, even within one event: for
            streams into which untrusted programs may put records.

    Attributes:
        stream_arn: ARN of the stream, or of the consumer if the mapping uses enhanced fan-out; empty if there are no records.
        shard_id: Shard of the records; empty if there are none.

    Raises:
        InvalidEventError: If this is not an event of Kinesis, or a record is damaged. The message names the place.
        ConfigError: If ``look_up_bytes`` or ``look_up_seconds`` is out of range, or ``recognize`` is not a bool.
    """

    def __init__(
        self,
        event: Mapping[str, Any],
        *,
        look_up: KinesisClient | None = None,
        look_up_bytes: int = LOOK_UP_BYTES,
        look_up_seconds: float | None = None,
        recognize: bool = True,
    ) -> None:
        check_int("look_up_bytes", look_up_bytes, 0, 1 << 40)
        if look_up_seconds is not None:
            check_seconds("look_up_seconds", look_up_seconds, 0, 900)
        check_bool("recognize", recognize)
        self._recognize = recognize
        self._look_up = look_up
        self._look_up_bytes = look_up_bytes
        self._look_up_seconds = look_up_seconds
        self._opened: list[UserRecords] | None = None
        items = event.get("Records") if isinstance(event, Mapping) else None
        if not isinstance(items, list):
            raise InvalidEventError("Records", "expected a list of records, as in an event of Kinesis")
        self.stream_arn: str = ""
        self.shard_id: str = ""
        self._carriers: list[KinesisRecord] = []
        self._keys: list[str] = []
        for index, item in enumerate(items):
            self._add(f"Records[{index}]", item)

    def _add(self, place: str, item: Any) -> None:
        if not isinstance(item, Mapping) or item.get("eventSource") != SOURCE:
            source = item.get("eventSource") if isinstance(item, Mapping) else None
            raise InvalidEventError(f"{place}.eventSource", f"expected {SOURCE!r}, not {source!r}")
        body, arn, event_id = item.get("kinesis"), item.get("eventSourceARN", ""), item.get("eventID", "")
        if not isinstance(body, Mapping) or not isinstance(arn, str) or not isinstance(event_id, str):
            raise InvalidEventError(place, "expected kinesis, eventSourceARN and eventID")
        carrier = kinesis_record(f"{place}.kinesis", body)
        if not self._carriers:
            self.stream_arn, self.shard_id = arn, event_id.rpartition(":")[0]
        self._carriers.append(carrier)
        self._keys.append(f"{arn}:{event_id}")

    def __len__(self) -> int:
        return len(self._carriers)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield each Kinesis record, in order, with its user records, which may be none."""
        for key, carrier, users in zip(self._keys, self._carriers, self._user_records(), strict=True):
            yield Delivery(key, carrier, users)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} Kinesis records of {self.shard_id or 'no shard'}>"

    @property
    def kinesis_records(self) -> Sequence[KinesisRecord]:
        """The Kinesis records, in the order of the shard."""
        return tuple(self._carriers)

    @property
    def user_records(self) -> UserRecords:
        """All user records, in order: the contents of all aggregates, and the Kinesis records that were not aggregated."""
        return UserRecords.joined(self._user_records()) if self._carriers else UserRecords()

    def _user_records(self) -> list[UserRecords]:
        """Return the user records of each Kinesis record. The whole event is needed to find repetitions in it."""
        if self._opened is None:
            arn = self.stream_arn.partition("/consumer/")[0]
            opened = open_records(
                self._carriers,
                stream_arn=arn,
                shard_id=self.shard_id,
                look_up=self._look_up,
                look_up_bytes=self._look_up_bytes,
                look_up_seconds=self._look_up_seconds,
                recognize=self._recognize,
            )
            self._opened = [self._located(users) for users in opened]
        return self._opened

    def _located(self, records: UserRecords) -> UserRecords:
        # ``arn:aws:kinesis:region:account:stream/name``; for a fan-out consumer, ``/consumer/…`` follows.
        stream = self.stream_arn.partition(":stream/")[2].partition("/")[0]
        if not stream or not self.shard_id:
            return records
        return records.of_type(located_record_type(UserRecord, stream, self.shard_id))

    def success(self) -> dict[str, Any]:
        """Return the response that reports every record as processed."""
        return {"batchItemFailures": []}

    def failure_at(self, record: UserRecord | KinesisRecord) -> dict[str, Any]:
        """Return the response that makes Lambda deliver the rest of the event again, from the Kinesis record of ``record`` on.

        All user records of that Kinesis record are delivered again, even those before ``record``. All earlier records must have been
        processed. If the mapping lacks the response type ``ReportBatchItemFailures``, Lambda ignores this response and **treats the whole
        batch as processed**; in this case, raise an error instead.

        Args:
            record: The first record that was not processed.

        Raises:
            ValueError: If the record is not in this event.
        """
        number = record.sequence_number
        if not any(carrier.sequence_number == number for carrier in self._carriers):
            raise ValueError(f"the event has no record with the sequence number {number}")
        return {"batchItemFailures": [{"itemIdentifier": number}]}


def kinesis_record(place: str, body: Mapping[str, Any]) -> KinesisRecord:
    """Return a Kinesis record from the field ``kinesis`` of an event's record.

    Raises:
        InvalidEventError: If a field is missing or damaged.
    """
    number, key = body.get("sequenceNumber"), body.get("partitionKey") or ""
    if not is_sequence_number(number):
        raise InvalidEventError(f"{place}.sequenceNumber", "expected decimal text of 1 to 129 digits")
    if not isinstance(key, str):
        raise InvalidEventError(f"{place}.partitionKey", f"expected text, not {type(key).__name__}")
    arrival = body.get("approximateArrivalTimestamp")
    return KinesisRecord(
        payload(f"{place}.data", body.get("data")),
        key,
        str(number),
        None if arrival is None else arrival_time(f"{place}.approximateArrivalTimestamp", arrival, 1.0),
        body.get("encryptionType"),
    )


def payload(place: str, text: object) -> bytes:
    """Return the bytes of a payload in base64.

    Raises:
        InvalidEventError: If the text is not base64.
    """
    try:
        if isinstance(text, str):
            return decode(text)
    except ValueError as error:
        raise InvalidEventError(place, f"not base64: {error}") from error
    raise InvalidEventError(place, f"expected base64 text, not {type(text).__name__}")


def arrival_time(place: str, value: object, unit: float) -> datetime:
    """Return a number of ``unit`` seconds since 1970 as an aware datetime, to the millisecond.

    Raises:
        InvalidEventError: If the value is not a number, or out of range.
    """
    try:
        if isinstance(value, (int, float)):
            milliseconds = round(value * unit * 1000)
            whole = datetime.fromtimestamp(milliseconds // 1000, tz=timezone.utc)
            return whole.replace(microsecond=milliseconds % 1000 * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidEventError(place, f"not a time: {error}") from error
    raise InvalidEventError(place, f"expected a number, not {type(value).__name__}")
