"""Data plane: PutRecord, PutRecords, GetShardIterator, GetRecords.

Requests are JSON objects in wire form. Data is kept as base64 text: it is checked, measured and stored in this form.
PutRecords and GetRecords return JSON text, which makes a fake in Python fast.
"""

from __future__ import annotations

import json
import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from json.encoder import encode_basestring_ascii
from typing import Any

from kinesis_sdk.testing.clock import millis
from kinesis_sdk.testing.errors import AwsError, constraint, invalid_argument
from kinesis_sdk.testing.faults import Fault
from kinesis_sdk.testing.kinesis.registry import StreamRegistry
from kinesis_sdk.testing.kinesis.shard import Shard
from kinesis_sdk.testing.kinesis.streams import HASH_SPACE, Stream, hash_of
from kinesis_sdk.testing.kinesis.tokens import seal, unseal

MAX_ENTRIES = 500
MAX_REQUEST_BYTES = 10 << 20
MAX_READ_BYTES = 10 << 20
MAX_DATA_BYTES = 10 << 20
MAX_READ_RECORDS = 10_000
ITERATOR_SECONDS = 300
_HASH_KEY = re.compile(r"0|[1-9]\d{0,38}", re.ASCII)
_SEQUENCE_NUMBER = re.compile(r"0|[1-9]\d{0,128}", re.ASCII)
ITERATOR_TYPES = ("AFTER_SEQUENCE_NUMBER", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "TRIM_HORIZON")

# A checked entry: base64 text, partition key as JSON text, bytes, hash key (None: Kinesis places the record).
_Entry = tuple[str, str, int, "int | None"]


def data_size(data: str) -> int:
    """Return the decoded size of base64 text in bytes, computed from its length; raise ValueError if it is not base64."""
    length = len(data)
    size = length // 4 * 3
    if data.endswith("="):
        size -= 2 if data.endswith("==") else 1
    # The decoder skips invalid characters; its result is then shorter than computed.
    if length % 4 or len(a2b_base64(data)) != size:
        raise ValueError("not base64")
    return size


class RecordPlane:
    """Data operations on a registry of streams. Thread-safe: each stream has its own lock."""

    def __init__(self, registry: StreamRegistry) -> None:
        self._registry = registry

    # -- writing ------------------------------------------------------------------------------------------------

    def _check(self, entry: Any, where: str, stream: Stream) -> _Entry:
        try:
            data, key, explicit = entry.get("Data"), entry.get("PartitionKey"), entry.get("ExplicitHashKey")
        except AttributeError:
            raise AwsError("SerializationException", f"{where} is not an object") from None
        if data is None:
            raise constraint(f"{where}data", None, "not be null")
        try:
            size = data_size(data)
        except (AttributeError, TypeError, ValueError, Base64Error):
            raise AwsError("SerializationException", f"{where}data is not a base64 string") from None
        if size > MAX_DATA_BYTES:
            raise constraint(f"{where}data", "<blob>", f"have length less than or equal to {MAX_DATA_BYTES}")
        hash_key: int | None = None
        key_json = ""
        if key is not None:
            if not isinstance(key, str):
                raise AwsError("SerializationException", f"{where}partitionKey is not a string")
            if not 0 < len(key) <= 256:
                raise constraint(f"{where}partitionKey", key, "have length between 1 and 256, both inclusive")
            key_json = f',"PartitionKey":{encode_basestring_ascii(key)}'
            size += len(key) if key.isascii() else len(key.encode())
        if explicit is not None and not (isinstance(explicit, str) and _HASH_KEY.fullmatch(explicit)):
            raise constraint(
                f"{where}explicitHashKey", explicit, r"satisfy regular expression pattern: 0|([1-9]\d{0,38})"
            )
        if stream.strategy != "AUTO":
            if key is None:
                raise constraint(f"{where}partitionKey", None, "not be null")
            if explicit is None:
                hash_key = hash_of(key)
            else:
                hash_key = int(explicit)
                if hash_key >= HASH_SPACE:
                    raise invalid_argument(
                        f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
                        f"Specified value was {explicit}"
                    )
        if size > stream.max_record_kib << 10:
            raise invalid_argument(
                f"{where}data and partitionKey have {size} bytes together; "
                f"stream {stream.name} takes at most {stream.max_record_kib << 10} bytes per record"
            )
        return data, key_json, size, hash_key

    def _store(
        self,
        operation: str,
        stream: Stream,
        entry: _Entry,
        arrival: int,
        now: float,
        *,
        is_late: bool = False,
    ) -> tuple[Shard, int | AwsError]:
        """Store a checked entry under the stream's lock; return its sequence number or its error."""
        data, key, size, hash_key = entry
        registry = self._registry
        if hash_key is None:
            hash_key = registry.random.getrandbits(128)
        shard = stream.shard_for(hash_key)
        if registry.faults and not is_late:
            fault = registry.faults.for_entry(operation, stream.name, shard.shard_id)
            if fault is not None:
                if fault.seconds:
                    late = (arrival + millis(fault.seconds), now + fault.seconds)
                    stream.write_later(late[1], lambda: self._store_late(operation, stream, [entry], *late))
                return shard, _entry_error(fault)
        if registry.throttle and not shard.write_limit.admit(size, now):
            registry.count(records_throttled=1)
            return shard, AwsError(
                "ProvisionedThroughputExceededException",
                f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} "
                f"under account {registry.account_id}.",
            )
        early = 0
        if registry.faults:
            early = millis(registry.faults.early_arrival(operation, stream.name, shard.shard_id))
        return shard, shard.append(data, key, size, arrival, early)

    def put_later(self, operation: str, request: dict[str, Any], seconds: float) -> None:
        """Check a PutRecord or PutRecords now, and store its records `seconds` later.

        They arrive at that time, in the shards that are open then. Records that exceed a shard's limit at that time are lost.
        """
        if operation == "PutRecord":
            stream = self._registry.find_serving(request)
            entries = [self._check(request, "", stream)]
            reject_dry_run(request)
        else:
            stream, entries, _ = self._checked(request)
        clock = self._registry.clock
        arrival, due = millis(clock.time() + seconds), clock.monotonic() + seconds
        with stream.lock:
            stream.write_later(due, lambda: self._store_late(operation, stream, entries, arrival, due))

    def _store_late(
        self, operation: str, stream: Stream, entries: list[_Entry], arrival: int, now: float
    ) -> None:
        """Store checked entries after their client got its response. The stream calls it under its lock."""
        for entry in entries:
            _, result = self._store(operation, stream, entry, arrival, now, is_late=True)
            if not isinstance(result, AwsError):
                self._registry.count(records_stored=1, bytes_stored=entry[2])
        stream.changed.notify_all()

    def put_record(self, request: dict[str, Any]) -> dict[str, Any]:
        """PutRecord."""
        stream = self._registry.find_serving(request)
        entry = self._check(request, "", stream)
        reject_dry_run(request)
        clock = self._registry.clock
        with stream.lock:
            shard, result = self._store("PutRecord", stream, entry, millis(clock.time()), clock.monotonic())
            if isinstance(result, AwsError):
                raise result
            stream.changed.notify_all()
        self._registry.count(records_stored=1, bytes_stored=entry[2])
        return {"ShardId": shard.shard_id, "SequenceNumber": str(result)}

    def put_records(self, request: dict[str, Any]) -> bytes:
        """PutRecords; returns JSON text. If the request as a whole is invalid, nothing is stored."""
        stream, entries, total = self._checked(request)
        clock = self._registry.clock
        arrival = millis(clock.time())
        now = clock.monotonic()
        results: list[str] = []
        failed = failed_bytes = 0
        store = self._store
        with stream.lock:
            for entry in entries:
                shard, result = store("PutRecords", stream, entry, arrival, now)
                if isinstance(result, AwsError):
                    failed += 1
                    failed_bytes += entry[2]
                    results.append(json.dumps({"ErrorCode": result.code, "ErrorMessage": result.message}))
                else:
                    results.append(f'{{"SequenceNumber":"{result}","ShardId":"{shard.shard_id}"}}')
            stream.changed.notify_all()
            # Free expired records that are never read. One shard a call is enough.
            shard.trim(stream.horizon)
        self._registry.count(records_stored=len(entries) - failed, bytes_stored=total - failed_bytes)
        return f'{{"FailedRecordCount":{failed},"Records":[{",".join(results)}]}}'.encode()

    def _checked(self, request: dict[str, Any]) -> tuple[Stream, list[_Entry], int]:
        """Return the stream, the entries and the total bytes of a PutRecords request."""
        stream = self._registry.find_serving(request)
        records = request.get("Records")
        if not isinstance(records, list):
            raise constraint("records", records, "not be null")
        if not 0 < len(records) <= MAX_ENTRIES:
            raise constraint(
                "records",
                f"{len(records)} records",
                f"have length between 1 and {MAX_ENTRIES}, both inclusive",
            )
        check = self._check
        entries = [
            check(record, f"records.{index}.member.", stream) for index, record in enumerate(records, 1)
        ]
        total = sum([entry[2] for entry in entries])
        if total > MAX_REQUEST_BYTES:
            raise invalid_argument(
                f"Records size exceeds 10 MB limit: {total} bytes of data and partition keys"
            )
        reject_dry_run(request)
        return stream, entries, total

    # -- reading ------------------------------------------------------------------------------------------------

    def _iterator(self, stream: Stream, shard: Shard, position: int) -> str:
        return seal(
            "iterator",
            stream.name,
            millis(stream.created_at),
            shard.shard_id,
            position,
            millis(self._registry.clock.time()),
        )

    def position_of(self, iterator: Any) -> tuple[str, str] | None:
        """Return the stream name and the shard id of a shard iterator, or None for other text."""
        fields = unseal(iterator) if isinstance(iterator, str) else None
        return (fields[1], fields[3]) if fields is not None and fields[0] == "iterator" else None

    def get_shard_iterator(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetShardIterator. Rejects a sequence number of another shard, and a timestamp in the future."""
        registry = self._registry
        stream = registry.find_serving(request)
        shard_id, kind = request.get("ShardId"), request.get("ShardIteratorType")
        if not isinstance(shard_id, str) or not shard_id:
            raise constraint("shardId", shard_id, "not be null")
        if kind not in ITERATOR_TYPES:
            raise constraint(
                "shardIteratorType", kind, f"satisfy enum value set: [{', '.join(ITERATOR_TYPES)}]"
            )
        with stream.lock:
            shard = stream.shard(shard_id, registry.account_id)
            position = self.position(request, stream, shard, kind)
            reject_dry_run(request)
            if registry.throttle and not shard.iterator_limit.take(1, registry.clock.monotonic()):
                raise self._read_throttled(stream, shard)
        return {"ShardIterator": self._iterator(stream, shard, position)}

    def position(
        self,
        request: dict[str, Any],
        stream: Stream,
        shard: Shard,
        kind: str,
        operation: str = "GetShardIterator",
    ) -> int:
        """Return the smallest sequence number that GetShardIterator requests. Call it under the stream's lock.

        Errors name `operation`.
        """
        if kind == "TRIM_HORIZON":
            return shard.numbers.starting
        if kind == "LATEST":
            return shard.next_number
        if kind == "AT_TIMESTAMP":
            timestamp = request.get("Timestamp")
            if not isinstance(timestamp, int | float):
                raise invalid_argument(
                    "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP"
                )
            if millis(timestamp) > millis(self._registry.clock.time()):
                raise invalid_argument(
                    f"The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
                    f"timestampInMillis: {millis(timestamp)}, "
                    f"currentTimestampInMillis: {millis(self._registry.clock.time())}"
                )
            return shard.number_since(millis(timestamp))
        number = request.get("StartingSequenceNumber")
        if number is None:
            raise invalid_argument(
                f"Must either specify (1) {kind} and StartingSequenceNumber or (2) TRIM_HORIZON or LATEST and no "
                f"StartingSequenceNumber. Request specified {kind} and no StartingSequenceNumber."
            )
        if not isinstance(number, str) or not _SEQUENCE_NUMBER.fullmatch(number):
            raise constraint(
                "startingSequenceNumber", number, r"satisfy regular expression pattern: 0|([1-9]\d{0,128})"
            )
        if not shard.numbers.owns(int(number)):
            raise invalid_argument(
                f"StartingSequenceNumber {number} used in {operation} on shard {shard.shard_id} in stream "
                f"{stream.name} under account {self._registry.account_id} is invalid because it did not come "
                f"from this shard."
            )
        return int(number) + (kind == "AFTER_SEQUENCE_NUMBER")

    def _read_throttled(self, stream: Stream, shard: Shard) -> AwsError:
        self._registry.count(reads_throttled=1)
        return AwsError(
            "ProvisionedThroughputExceededException",
            f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} "
            f"under account {self._registry.account_id}.",
        )

    def get_records(self, request: dict[str, Any], *, empty: bool = False) -> bytes:
        """GetRecords; returns JSON text.

        With `empty`, it returns no records, as Kinesis may do at any position, and a positive lag if records follow. At the end
        of a closed shard there are ``ChildShards`` and no ``NextShardIterator``. An iterator expires after 300 s.
        """
        registry = self._registry
        token, limit = request.get("ShardIterator"), request.get("Limit")
        if limit is None:
            limit = MAX_READ_RECORDS
        if not isinstance(limit, int) or not 1 <= limit <= MAX_READ_RECORDS:
            raise constraint("limit", limit, f"have value between 1 and {MAX_READ_RECORDS}, both inclusive")
        if token is None:
            raise constraint("shardIterator", None, "not be null")
        fields = unseal(token) if isinstance(token, str) else None
        if fields is None or fields[0] != "iterator":
            raise invalid_argument("Invalid ShardIterator.")
        _, name, created, shard_id, position_text, issued = fields
        now = registry.clock.time()
        now_millis = millis(now)
        if now_millis - int(issued) > ITERATOR_SECONDS * 1000:
            raise AwsError(
                "ExpiredIteratorException",
                f"Iterator expired. The iterator was created at {int(issued) / 1000} while right now it is {now} "
                f"which is further in the future than the tolerated delay of {ITERATOR_SECONDS * 1000} "
                "milliseconds.",
            )
        stream = registry.by_name(name)
        if millis(stream.created_at) != int(created):
            raise registry.not_found(name)
        position = int(position_text)
        with stream.lock:
            shard = stream.shard(shard_id, registry.account_id)
            reject_dry_run(request)
            if registry.throttle and not shard.read_limit.admit(registry.clock.monotonic()):
                raise self._read_throttled(stream, shard)
            horizon = stream.horizon
            shard.trim(horizon)
            if empty:
                behind = shard.lag(position, horizon, now_millis)
            else:
                page = shard.read(position, limit, MAX_READ_BYTES, horizon)
                position = page.position
                behind = 0 if page.behind_arrival is None else max(0, now_millis - page.behind_arrival)
                if registry.throttle:
                    shard.read_limit.charge(page.size)
            at_end = shard.closed_at is not None and not empty and page.behind_arrival is None
            children = [child.describe_as_child() for child in shard.children] if at_end else []
        fragments = [] if empty else page.fragments
        registry.count(records_read=len(fragments))
        tail = f'],"MillisBehindLatest":{behind}'
        if at_end:
            tail += f',"ChildShards":{json.dumps(children)}}}'
        else:
            tail += f',"NextShardIterator":"{self._iterator(stream, shard, position)}"}}'
        return b'{"Records":[%b%b' % (b",".join(fragments), tail.encode())


def _entry_error(fault: Fault) -> AwsError:
    error = fault.error()
    if error.code == "InternalFailure" and fault.message is None:
        error.message = "Internal Service Failure"
    return error


def reject_dry_run(request: dict[str, Any]) -> None:
    """Raise the error of a dry run; called after all other checks of the request."""
    if request.get("DryRun"):
        raise AwsError(
            "DryRunOperationException", "Request would have succeeded, but the DryRun flag is set."
        )
