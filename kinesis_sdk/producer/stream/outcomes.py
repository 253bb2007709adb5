"""Outcome of an attempt to store a Kinesis record: whether the record is stored where every consumer reads it.

`check_placement` judges accepted records. A KCL discards an aggregate if any of its user records lies outside the range of the
shard it was read from (`AggregatorUtil.deaggregate`). An aggregate therefore counts as stored only if all its hash keys lie in the
range of the shard that accepted it; otherwise the whole aggregate is sent again. A record that was not aggregated counts as stored in any
shard. A single user record with a table of runs or with headers is in an aggregate: readers drop it from a shard to which its hash key
does not belong.

`stored_nothing` decides about calls that failed as a whole, and about entries that were rejected. No other code decides this. If it
returns True for an attempt that did store the record, the record is sent again without the mark by which readers recognize the
repetition. The opposite error only delays a retry. So every doubtful case counts as unknown.
"""

from __future__ import annotations

from enum import Enum

from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    EndpointUnreachableError,
    KinesisSdkError,
    PermanentAwsError,
    ThrottledError,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.records.entry import Entry

_TIMEOUTS = frozenset({"RequestTimeout", "RequestTimeoutException"})
"""Codes with which the service reports that it did not read a request to its end. This is not certain: its front end may have read the
request."""

_NEVER_SENT = frozenset({"CredentialRetrievalError", "MetadataRetrievalError"})
"""Errors of botocore before a request is signed."""

_NO_DOCUMENT = frozenset({"", "Unknown", "ClientError"})
"""Codes of responses without an error document, or with a truncated error document: a server other than Kinesis may have sent such a
response. A status instead of a code has the same meaning."""

_PROXY = "ProxyConnectionError"
"""With a proxy, urllib3 1.26 reports every broken connection as this error, even if the connection broke after the request was sent."""


class Placement(Enum):
    """Result of the placement check of an accepted Kinesis record."""

    STORED = "stored"
    WRONG_SHARD = "wrong shard"
    UNKNOWN_SHARD = "unknown shard"


def check_placement(
    entry: Entry, actual_shard_id: str, shard_map: ShardMap | None, *, service_places: bool = False
) -> Placement:
    """Return whether a Kinesis record landed in the shard to which all its user records belong.

    ``UNKNOWN_SHARD`` means: load a new map, then check again. ``service_places`` is true if the stream places records regardless of their
    hash keys.
    """
    if not entry.form.is_wrapped:
        return Placement.STORED
    if not entry.aggregate.tagged and entry.shard_id is None and not service_places:
        # All its records have the hash key by which Kinesis placed it, so the shard that stored it is the right one.
        return Placement.STORED
    actual = shard_map.range_of(actual_shard_id) if shard_map else None
    if actual is None:
        return Placement.UNKNOWN_SHARD
    return Placement.STORED if fits_within(entry, actual) else Placement.WRONG_SHARD


def fits_within(entry: Entry, hash_key_range: HashKeyRange) -> bool:
    """Return whether all hash keys of a Kinesis record lie within a range."""
    aggregate = entry.aggregate
    return hash_key_range.start_bytes <= aggregate.lowest and aggregate.highest <= hash_key_range.end_bytes


def stored_nothing(error: KinesisSdkError) -> bool:
    """Return whether it is certain that an attempt with this error stored nothing.

    Certain cases: it was throttled; it was rejected with status 4xx (except 408) and an error document of the service; an entry was rejected
    with a code that means it would be rejected again; there was no connection, or there were no credentials. Not certain: a timeout, a
    closed connection, 5xx, an unreadable response, an internal failure of one entry. The error of an entry has no HTTP status.
    """
    if not isinstance(error, AwsError):
        return False
    if isinstance(error, ThrottledError):
        return True
    if error.status is None:
        if isinstance(error, EndpointUnreachableError):
            return error.code != _PROXY
        return isinstance(error, PermanentAwsError) or error.code in _NEVER_SENT
    if not 400 <= error.status < 500 or error.status == 408 or error.code in _TIMEOUTS:
        return False
    return isinstance(error, AwsConfigError) or not (error.code.isdigit() or error.code in _NO_DOCUMENT)
