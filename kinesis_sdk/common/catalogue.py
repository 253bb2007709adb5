"""The catalogue of metrics: every metric that producers and consumers record, defined once.

Emission, levels, kinds, the names in CloudWatch, Prometheus and OpenTelemetry, and the table in ``docs/metrics.md`` come
from these constants. A metric that the KPL (metrics.md, metrics_constants.cc) or the KCL (``MetricsLevel`` at each call site) has
keeps its name, unit and level.
"""

from __future__ import annotations

from typing import Any

from kinesis_sdk.common.metrics import (
    APPLICATION_NAME,
    ERROR_CODE,
    SHARD_ID,
    STREAM_NAME,
    WORKER_IDENTIFIER,
    Kind,
    Metric,
)

# ------------------------------------------------------------------------------------------------- producer

_OF_STREAM: dict[str, Any] = {"dimensions": (STREAM_NAME,)}
_OF_PREDICTED_SHARD: dict[str, Any] = {"dimensions": (STREAM_NAME,), "optional": (SHARD_ID,)}
"""Without a shard map, the shard of a record is unknown, and the record is counted for the stream."""

USER_RECORDS_RECEIVED = Metric(
    name="UserRecordsReceived",
    unit="Count",
    kind=Kind.COUNTER,
    description="User records accepted by `put`.",
    **_OF_STREAM,
)
USER_RECORDS_PENDING = Metric(
    name="UserRecordsPending",
    unit="Count",
    kind=Kind.GAUGE,
    rollup="sum",
    description="User records without a final result, sampled every 0.2 s while there are any.",
    **_OF_STREAM,
)
USER_RECORDS_PUT = Metric(
    name="UserRecordsPut",
    unit="Count",
    kind=Kind.OUTCOME,
    level="summary",
    description="User records with a final result: 1 for each that was stored, 0 for each that failed.",
    **_OF_PREDICTED_SHARD,
)
USER_RECORDS_DATA_PUT = Metric(
    name="UserRecordsDataPut",
    unit="Bytes",
    kind=Kind.COUNTER,
    description="Payload of the stored user records.",
    **_OF_PREDICTED_SHARD,
)
USER_RECORD_EXPIRED = Metric(
    name="UserRecordExpired",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records that exceeded their time-to-live (`record_ttl`).",
    **_OF_PREDICTED_SHARD,
)
RETRIES_PER_RECORD = Metric(
    name="RetriesPerRecord",
    unit="Count",
    kind=Kind.DISTRIBUTION,
    description="Attempts of each user record with a final result, minus one.",
    **_OF_PREDICTED_SHARD,
)
BUFFERING_TIME = Metric(
    name="BufferingTime",
    unit="Milliseconds",
    kind=Kind.DISTRIBUTION,
    level="summary",
    description="Time that a user record was buffered before each of its attempts.",
    **_OF_PREDICTED_SHARD,
)
KINESIS_RECORDS_PUT = Metric(
    name="KinesisRecordsPut",
    unit="Count",
    kind=Kind.OUTCOME,
    level="summary",
    description="Kinesis records in PutRecords responses: 1 for each that was stored, 0 for each that was rejected.",
    **_OF_PREDICTED_SHARD,
)
KINESIS_RECORDS_DATA_PUT = Metric(
    name="KinesisRecordsDataPut",
    unit="Bytes",
    kind=Kind.COUNTER,
    description="Payload of the stored Kinesis records.",
    **_OF_PREDICTED_SHARD,
)
ALL_ERRORS = Metric(
    name="AllErrors",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Rejected Kinesis records and failed requests; each stored Kinesis record adds an observation of 0.",
    **_OF_PREDICTED_SHARD,
)
ERRORS_BY_CODE = Metric(
    name="ErrorsByCode",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    dimensions=(ERROR_CODE, STREAM_NAME),
    optional=(SHARD_ID,),
    description="Rejected Kinesis records and failed requests by error code; `Wrong Shard` stands for an aggregate that landed across a reshard.",
)
BEGUN_ANEW = Metric(
    name="BegunAnew",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records of an idempotent producer that were sent with a new identity more than 600 s after an attempt that may be stored: "
    "readers may deliver them twice.",
    **_OF_STREAM,
)
USER_RECORDS_PER_KINESIS_RECORD = Metric(
    name="UserRecordsPerKinesisRecord",
    unit="Count",
    kind=Kind.DISTRIBUTION,
    description="User records in each Kinesis record that was sent.",
    **_OF_PREDICTED_SHARD,
)
REQUEST_TIME = Metric(
    name="RequestTime",
    unit="Milliseconds",
    kind=Kind.TIMING,
    description="Duration of each PutRecords call.",
    **_OF_STREAM,
)
KINESIS_RECORDS_PER_REQUEST = Metric(
    name="KinesisRecordsPerPutRecordsRequest",
    unit="Count",
    kind=Kind.DISTRIBUTION,
    description="Kinesis records in each PutRecords call.",
    **_OF_STREAM,
)
USER_RECORDS_PER_REQUEST = Metric(
    name="UserRecordsPerPutRecordsRequest",
    unit="Count",
    kind=Kind.DISTRIBUTION,
    description="User records in each PutRecords call.",
    **_OF_STREAM,
)

PRODUCER_METRICS = (
    USER_RECORDS_RECEIVED,
    USER_RECORDS_PENDING,
    USER_RECORDS_PUT,
    USER_RECORDS_DATA_PUT,
    USER_RECORD_EXPIRED,
    RETRIES_PER_RECORD,
    BUFFERING_TIME,
    KINESIS_RECORDS_PUT,
    KINESIS_RECORDS_DATA_PUT,
    ALL_ERRORS,
    ERRORS_BY_CODE,
    BEGUN_ANEW,
    USER_RECORDS_PER_KINESIS_RECORD,
    REQUEST_TIME,
    KINESIS_RECORDS_PER_REQUEST,
    USER_RECORDS_PER_REQUEST,
)

# ----------------------------------------------------------------------------------- consumer: one shard, its lease

# ``ProcessTask`` also for reads: the KCL's KinesisDataFetcher records them under this operation, too.
_OF_SHARD: dict[str, Any] = {
    "operation": "ProcessTask",
    "dimensions": (APPLICATION_NAME, STREAM_NAME, SHARD_ID),
}

RECORDS_PROCESSED = Metric(
    name="RecordsProcessed",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records that the handler processed.",
    **_OF_SHARD,
)
DATA_BYTES_PROCESSED = Metric(
    name="DataBytesProcessed",
    unit="Bytes",
    kind=Kind.COUNTER,
    level="summary",
    description="Payload of the user records that the handler processed.",
    **_OF_SHARD,
)
MILLIS_BEHIND_LATEST = Metric(
    name="MillisBehindLatest",
    unit="Milliseconds",
    kind=Kind.GAUGE,
    level="summary",
    short_name="behind_latest",
    description="Time by which the last read was behind the tip of the shard, as reported by Kinesis.",
    **_OF_SHARD,
)
OLDEST_UNPROCESSED_RECORD_AGE = Metric(
    name="OldestUnprocessedRecordAge",
    unit="Milliseconds",
    kind=Kind.GAUGE,
    level="summary",
    description="Age of the oldest record that the handler has not processed, recorded every 5 s, even while the handler is busy.",
    **_OF_SHARD,
)
HANDLER_FAILURES = Metric(
    name="HandlerFailures",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Callbacks of the handler that raised, retries included.",
    **_OF_SHARD,
)
HANDLER_BATCH_SIZE = Metric(
    name="HandlerBatchSize",
    unit="Count",
    kind=Kind.GAUGE,
    level="summary",
    description="User records in a call of `process_records`, while repeated failures keep calls smaller than `batch_records`; afterwards "
    "`batch_records` once.",
    **_OF_SHARD,
)
PROCESS_RECORDS_TIME = Metric(
    name="RecordProcessor.processRecords.Time",
    unit="Milliseconds",
    kind=Kind.TIMING,
    level="summary",
    short_name="process_records_time",
    description="Duration of each call of `process_records` that succeeded.",
    **_OF_SHARD,
)
RECORDS_DEAD_LETTERED = Metric(
    name="RecordsDeadLettered",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records that were passed to the dead-letter hook.",
    **_OF_SHARD,
)
RECORDS_DEFERRED = Metric(
    name="RecordsDeferred",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records that were set aside for a later delivery, see `docs/retries.md`.",
    **_OF_SHARD,
)
CIRCUIT_OPEN = Metric(
    name="CircuitOpen",
    unit="Count",
    kind=Kind.GAUGE,
    level="summary",
    description="1 at each pause of a shard whose `CircuitBreaker` is open, and 0 once when it closes.",
    **_OF_SHARD,
)
CHECKPOINT_EXPIRED = Metric(
    name="CheckpointExpired",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Starts of a shard at which the record of its checkpoint had expired, so that records may have expired unread.",
    **_OF_SHARD,
)
REPETITIONS_DROPPED = Metric(
    name="RepetitionsDropped",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records of idempotent producers that were dropped: later copies of a record, and misplaced ones that their "
    "producer puts again.",
    **_OF_SHARD,
)
AGGREGATES_UNREADABLE = Metric(
    name="AggregatesUnreadable",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Kinesis records that are marked as compressed aggregates but cannot be opened. If they are damaged, or declare sizes that no "
    "producer writes, each was delivered as it is, as one record. If their codec is not installed, the shard waits at the record, which is counted again "
    "with each attempt.",
    **_OF_SHARD,
)
NAMES_DROPPED = Metric(
    name="NamesDropped",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Dropped user records that were put for the first time, with the `dedup_id` of an earlier record: another process put the "
    "same fact, or a program that knows the name suppresses the record. `RepetitionsDropped` also counts these records.",
    **_OF_SHARD,
)
REPETITIONS_UNKNOWN = Metric(
    name="RepetitionsUnknown",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="User records that were delivered although an earlier copy may exist: the records that would show it have expired, "
    "or reading them is not permitted.",
    **_OF_SHARD,
)
REPETITION_LOOK_UPS = Metric(
    name="RepetitionLookUps",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Batches for which the stream was read again, to find earlier copies of records that may be repetitions. Such "
    "batches are normal after a lost response and after a change of the shard's owner.",
    **_OF_SHARD,
)
REPETITION_LOOK_UPS_BEYOND_MEMORY = Metric(
    name="RepetitionLookUpsBeyondMemory",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Batches of `RepetitionLookUps` for which a larger `max_repetition_bytes` would have made the look-up unnecessary.",
    **_OF_SHARD,
)
REPETITION_LOOK_UP_BYTES = Metric(
    name="RepetitionLookUpBytes",
    unit="Bytes",
    kind=Kind.COUNTER,
    level="summary",
    description="Bytes that were read again to find earlier copies of records.",
    **_OF_SHARD,
)
REPETITION_LOOK_UPS_OVER_BUDGET = Metric(
    name="RepetitionLookUpsOverBudget",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Batches for which `max_look_up_bytes` ended the search for earlier copies.",
    **_OF_SHARD,
)
REPETITION_MEMORY_USED = Metric(
    name="RepetitionMemoryUsed",
    unit="Bytes",
    kind=Kind.GAUGE,
    rollup="max",
    description="Memory that the reader of a shard needs to recognize repetitions, at most `max_repetition_bytes`. It is "
    "recorded for shards with records of idempotent producers.",
    **_OF_SHARD,
)
SHARD_QUARANTINED = Metric(
    name="ShardQuarantined",
    unit="Count",
    kind=Kind.GAUGE,
    rollup="sum",
    level="summary",
    description="1 while the shard is not consumed because its lease names a position that cannot be read; 0 once repaired.",
    **_OF_SHARD,
)
SHARD_STALLED = Metric(
    name="ShardStalled",
    unit="Milliseconds",
    kind=Kind.GAUGE,
    level="summary",
    description="Time without progress of a shard that exceeded `stall_timeout`; 0 once it has recovered.",
    **_OF_SHARD,
)

GET_RECORDS_TIME = Metric(
    name="KinesisDataFetcher.getRecords.Time",
    unit="Milliseconds",
    kind=Kind.TIMING,
    level="summary",
    short_name="get_records_time",
    description="Duration of each GetRecords call.",
    **_OF_SHARD,
)
GET_RECORDS_SUCCESS = Metric(
    name="KinesisDataFetcher.getRecords.Success",
    unit="Count",
    kind=Kind.OUTCOME,
    level="summary",
    short_name="get_records",
    description="GetRecords calls: 1 for each that succeeded, 0 for each that failed or was throttled.",
    **_OF_SHARD,
)
READS_THROTTLED = Metric(
    name="ReadsThrottled",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="GetRecords and GetShardIterator calls that were throttled, by this or another application's use of the shard.",
    **_OF_SHARD,
)
RECORDS_READ = Metric(
    name="RecordsRead",
    unit="Count",
    kind=Kind.COUNTER,
    description="Kinesis records that were read, by polling or enhanced fan-out; an aggregate counts once.",
    **_OF_SHARD,
)
DATA_BYTES_READ = Metric(
    name="DataBytesRead",
    unit="Bytes",
    kind=Kind.COUNTER,
    description="Payload of the Kinesis records that were read, by polling or enhanced fan-out.",
    **_OF_SHARD,
)
UPDATE_LEASE_TIME = Metric(
    name="UpdateLease.Time",
    unit="Milliseconds",
    kind=Kind.TIMING,
    description="Duration of each attempt to write a checkpoint.",
    **_OF_SHARD,
)
UPDATE_LEASE_SUCCESS = Metric(
    name="UpdateLease.Success",
    unit="Count",
    kind=Kind.OUTCOME,
    short_name="update_lease",
    description="Attempts to write a checkpoint: 1 for each that succeeded, 0 for each that failed.",
    **_OF_SHARD,
)

# -------------------------------------------------------------------------------------------- consumer: one worker

_OF_WORKER: dict[str, Any] = {"dimensions": (APPLICATION_NAME, WORKER_IDENTIFIER)}
_RENEWING: dict[str, Any] = {"operation": "RenewAllLeases", **_OF_WORKER}
_TAKING: dict[str, Any] = {"operation": "TakeLeases", **_OF_WORKER}

CURRENT_LEASES = Metric(
    name="CurrentLeases",
    unit="Count",
    kind=Kind.GAUGE,
    rollup="sum",
    level="summary",
    description="Leases that the worker holds.",
    **_RENEWING,
)
LOST_LEASES = Metric(
    name="LostLeases",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Leases that the worker lost: a peer took them, or they were not renewed in time.",
    **_RENEWING,
)
RENEW_LEASE_TIME = Metric(
    name="RenewLease.Time",
    unit="Milliseconds",
    kind=Kind.TIMING,
    description="Duration of each renewal of a lease.",
    **_RENEWING,
)
RENEW_LEASE_SUCCESS = Metric(
    name="RenewLease.Success",
    unit="Count",
    kind=Kind.OUTCOME,
    short_name="renew_lease",
    description="Renewals of leases: 1 for each that succeeded, 0 for each that failed or found the lease lost.",
    **_RENEWING,
)
LEASES_HANDED_OFF = Metric(
    name="LeasesHandedOff",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Leases that the worker handed off to a peer that had requested them (graceful handoff).",
    **_RENEWING,
)
TAKEN_LEASES = Metric(
    name="TakenLeases",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Leases that the worker took, for any reason.",
    **_TAKING,
)
EXPIRED_LEASES_TAKEN = Metric(
    name="ExpiredLeasesTaken",
    unit="Count",
    kind=Kind.COUNTER,
    level="summary",
    description="Leases that the worker took because their owner had stopped renewing them.",
    **_TAKING,
)
LEASE_HANDOFFS_REQUESTED = Metric(
    name="LeaseHandoffsRequested",
    unit="Count",
    kind=Kind.COUNTER,
    description="Leases that the worker requested from a live peer (graceful handoff).",
    **_TAKING,
)
EXPIRED_LEASES = Metric(
    name="ExpiredLeases",
    unit="Count",
    kind=Kind.GAUGE,
    level="summary",
    description="Leases whose owner had stopped renewing them, at the last scan.",
    **_TAKING,
)
UNREADABLE_LEASES = Metric(
    name="UnreadableLeases",
    unit="Count",
    kind=Kind.GAUGE,
    level="summary",
    description="Leases whose rows need repair before a worker can take them or consume their shards, at the last scan.",
    **_TAKING,
)
NUM_WORKERS = Metric(
    name="NumWorkers",
    unit="Count",
    kind=Kind.GAUGE,
    level="summary",
    description="Workers of the application that the worker saw alive at the last scan, itself included.",
    **_TAKING,
)
TOTAL_LEASES = Metric(
    name="TotalLeases",
    unit="Count",
    kind=Kind.GAUGE,
    description="Leases of the application in the lease table, at the last scan.",
    **_TAKING,
)
LEASES_TO_TAKE = Metric(
    name="LeasesToTake",
    unit="Count",
    kind=Kind.GAUGE,
    rollup="sum",
    description="Leases that the worker decided to take or to request, at the last scan.",
    **_TAKING,
)
LIST_LEASES_TIME = Metric(
    name="ListLeases.Time",
    unit="Milliseconds",
    kind=Kind.TIMING,
    description="Duration of each scan of the lease table.",
    **_TAKING,
)
LIST_LEASES_SUCCESS = Metric(
    name="ListLeases.Success",
    unit="Count",
    kind=Kind.OUTCOME,
    short_name="list_leases",
    description="Scans of the lease table: 1 for each that succeeded, 0 for each that failed.",
    **_TAKING,
)

CONSUMER_METRICS = (
    RECORDS_PROCESSED,
    DATA_BYTES_PROCESSED,
    MILLIS_BEHIND_LATEST,
    OLDEST_UNPROCESSED_RECORD_AGE,
    PROCESS_RECORDS_TIME,
    HANDLER_FAILURES,
    HANDLER_BATCH_SIZE,
    RECORDS_DEAD_LETTERED,
    RECORDS_DEFERRED,
    CIRCUIT_OPEN,
    SHARD_STALLED,
    SHARD_QUARANTINED,
    CHECKPOINT_EXPIRED,
    REPETITIONS_DROPPED,
    AGGREGATES_UNREADABLE,
    NAMES_DROPPED,
    REPETITIONS_UNKNOWN,
    REPETITION_LOOK_UPS,
    REPETITION_LOOK_UPS_BEYOND_MEMORY,
    REPETITION_LOOK_UP_BYTES,
    REPETITION_LOOK_UPS_OVER_BUDGET,
    REPETITION_MEMORY_USED,
    GET_RECORDS_TIME,
    GET_RECORDS_SUCCESS,
    READS_THROTTLED,
    RECORDS_READ,
    DATA_BYTES_READ,
    UPDATE_LEASE_TIME,
    UPDATE_LEASE_SUCCESS,
    CURRENT_LEASES,
    LOST_LEASES,
    RENEW_LEASE_TIME,
    RENEW_LEASE_SUCCESS,
    LEASES_HANDED_OFF,
    TAKEN_LEASES,
    EXPIRED_LEASES_TAKEN,
    LEASE_HANDOFFS_REQUESTED,
    EXPIRED_LEASES,
    UNREADABLE_LEASES,
    NUM_WORKERS,
    TOTAL_LEASES,
    LEASES_TO_TAKE,
    LIST_LEASES_TIME,
    LIST_LEASES_SUCCESS,
)

CATALOGUE = (*PRODUCER_METRICS, *CONSUMER_METRICS)
"""All metrics, in the order of the documentation."""
