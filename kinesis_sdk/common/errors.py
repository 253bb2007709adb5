"""All errors of the SDK, in one tree.

```
KinesisSdkError                      retryable: True if repeating the call later may succeed
├── ConfigError (ValueError)         a configuration field is out of range
│   └── LeaseTableNotFoundError      an application has no lease table, or no leases in it
├── InvalidRecordError (ValueError)  a record that Kinesis would reject
├── AwsError                         a call to AWS failed: operation, code, message, endpoint
│   ├── PermanentAwsError            the same call fails again (missing stream, access denied …)
│   │   ├── ResourceNotFoundError    the stream, table or shard does not exist
│   │   ├── InvalidPositionError         a shard has no such position to read from
│   │   └── AwsConfigError           no region, no credentials, wrong credentials
│   ├── ThrottledError               the request was throttled            (retryable)
│   ├── ConditionFailedError         a conditional write lost; carries the item if DynamoDB returned it
│   ├── ExpiredIteratorError         a shard iterator is too old          (retryable with a new iterator)
│   └── TransientAwsError            5xx, timeouts, connection trouble    (retryable)
│       └── EndpointUnreachableError the endpoint does not respond        (retryable)
├── SerializationError (ValueError)  a value cannot be encoded by the stream's serializer
├── DeserializationError (ValueError)  the payload of a record cannot be decoded; names the record
│   └── SchemaUnavailableError       its schema could not be loaded; the record may be intact (retryable)
├── CodecUnavailableError           the codec of a compressed aggregate is not installed (retryable)
├── SchemaRegistryError              the schema registry has no such schema, or rejects it
│   └── SchemaPendingError           the registry still checks a schema version    (retryable)
├── InvalidEventError (ValueError)   a Lambda function was invoked with an event of another kind
├── ProtocolError                    a response that violates the API's contract (retryable)
├── ProducerError
│   ├── RecordFailedError            a record's final failure: stream, key, attempts, real cause
│   ├── PutManyError                 put_many stopped: index, accepted futures, the real cause
│   ├── BufferFullError              the producer's buffer is full (retryable)
│   ├── SpoolError                   a failed record could not be spooled: file full, disk full
│   └── ProducerClosedError          put after close, or closed before the record was acknowledged
├── DeadLetterError                  a store of dead letters cannot be read or written (retryable)
├── AdminError                       an administrative change was not made, or was not finished in time
│   ├── AuditLogError                the audit log cannot be written, so nothing is changed
│   └── ChangeRefusedError           a change of a lease table would not be safe; nothing was written
└── ConsumerError
    ├── LeaseLostError               this worker no longer holds the lease
    ├── LeaseStoreError              a call to a lease store that is not DynamoDB failed
    │   ├── LeaseRowRejectedError    the store cannot write this one row
    │   └── TransientLeaseStoreError the same, and repeating it may succeed   (retryable)
    ├── SinkError                    a call to a sink failed
    │   └── TransientSinkError       the same, and repeating it may succeed   (retryable)
    ├── EffectRejectedError (ValueError)  a sink does not accept the effect of a record: a limit, a condition
    ├── StreamRecreatedError         the lease table belongs to a deleted stream of this name
    ├── InvalidCheckpointError (ValueError)  a checkpoint outside the delivered range
    ├── UnacknowledgedError          too many records of a shard are not acknowledged (retryable)
    ├── HandlerError                 the handler failed and the policy is to stop
    └── RestartShardError            a handler cannot continue; its shard starts again at the checkpoint
```

Catch at any level. The SDK never raises errors of botocore directly: `kinesis_sdk.common.aws.translate_error`
translates them, and the original error is the ``__cause__``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from kinesis_sdk.common.records import Attempt

_SHOWN = 200
"""Maximum characters of a rejected value that a message shows."""


def _shown(value: object) -> str:
    """Return the ``repr`` of a value for a message, with bounded length and without the passwords of URLs."""
    try:
        text = without_userinfo(repr(value))
    except ValueError:  # an int in the value has more digits than Python converts to text
        return f"a huge {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


_USERINFO = re.compile(r"(?<=://)\S*@")
"""User name and password of a URL, up to the last ``@``: an unescaped ``/`` may be part of a password."""

HIDDEN_PARAMETER = r"(?:passw|passcode|passphrase|pass(?![^=])|pwd|secret|token)"
"""Part of a secret's name in the query of a URL, where some database drivers accept secrets: ``password``,
``sslpassword``, ``ssl_key_password``, ``authToken`` … To be compared without regard to case."""

_SECRETS = re.compile(rf"(?i)(?<=[?&])[^=&?\s]{{0,64}}{HIDDEN_PARAMETER}[^=&?\s]{{0,64}}=[^&\s]*&?")
"""Secrets in the query of a URL. The bounds of the name keep the search fast in any text."""


def without_userinfo(text: str) -> str:
    """Return the text without the user names and passwords of the URLs in it (``http://name:password@host``, ``…?password=…``)."""
    return _SECRETS.sub("", _USERINFO.sub("", text) if "@" in text else text)


def _restore(kind: type[KinesisSdkError], args: tuple[object, ...]) -> KinesisSdkError:
    """Create an error that is unpickled or copied, without calling its constructor; its attributes follow as state."""
    return kind.__new__(kind, *args)


class KinesisSdkError(Exception):
    """Root of every error of this package.

    Every error can be copied and pickled with its attributes, because multiprocessing and Spark pass errors between
    processes. The ``__cause__`` of an error is not pickled, as for every Python exception.

    Attributes:
        retryable: True if repeating the call later may succeed.
    """

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the final message alone, which most classes do not accept.
        return (_restore, (type(self), self.args), self.__dict__)


class ConfigError(KinesisSdkError, ValueError):
    """A configuration field has a value outside its accepted range.

    Args:
        field: Name of the field as the user writes it.
        value: Rejected value.
        accepted: Accepted values, in words ("1 to 500").
        problem: The message, such as "there is no such stream"; by default, it is made of field, value and accepted values.
    """

    def __init__(self, field: str, value: object, accepted: str, *, problem: str | None = None) -> None:
        super().__init__(problem or f"{field}={_shown(value)} is invalid: expected {accepted}")
        self.field = field
        self.value = value
        self.accepted = accepted


class LeaseTableNotFoundError(ConfigError):
    """An application has no lease table in DynamoDB, or no leases in the given database."""


class InvalidRecordError(KinesisSdkError, ValueError):
    """A record that Kinesis would reject; raised by ``put`` itself, before the record is buffered.

    The message never contains the payload.

    Args:
        field: ``stream``, ``partition_key``, ``explicit_hash_key``, ``data``, ``headers``, ``dedup_id``, ``dedup_window`` or
            ``identity``.
        problem: Problem with the value, and accepted values.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class SerializationError(KinesisSdkError, ValueError):
    """A value cannot be encoded; raised by ``put`` itself, with the error of the serializer as its cause.

    The message never contains the value, but the message of its cause may: libraries quote the value that they reject.

    Args:
        stream: Name of the stream.
        problem: What is wrong.
    """

    def __init__(self, stream: str, problem: str) -> None:
        super().__init__(f"stream {stream}: the serializer failed: {problem}")
        self.stream = stream
        self.problem = problem


class DeserializationError(KinesisSdkError, ValueError):
    """The payload of a record cannot be decoded; raised by ``UserRecord.value``, with the cause.

    For `BisectBatch`, this error counts as an error of the record, which is finally passed to the dead-letter hook. The
    message never contains the payload, but the message of its cause may: libraries quote the value that they reject.

    Args:
        problem: What is wrong.
        stream: Name of the stream.
        shard_id: Shard of the record; None if unknown.
        sequence_number: Sequence number of its Kinesis record.
        sub_sequence_number: Index in the aggregate.
    """

    def __init__(
        self,
        problem: str,
        *,
        stream: str,
        shard_id: str | None,
        sequence_number: str,
        sub_sequence_number: int,
    ) -> None:
        shard = f" shard {shard_id}" if shard_id else ""
        super().__init__(
            f"stream {stream}{shard}: the payload of record {sequence_number}.{sub_sequence_number} cannot be decoded: "
            f"{problem}"
        )
        self.problem = problem
        self.stream = stream
        self.shard_id = shard_id
        self.sequence_number = sequence_number
        self.sub_sequence_number = sub_sequence_number


class SchemaUnavailableError(DeserializationError):
    """The schema of a record could not be loaded from the registry, so the record itself may be intact.

    `BisectBatch` retries it as `RetryBatch` does: records are not dead-lettered because a registry is down, or because a
    permission is missing.
    """

    retryable: ClassVar[bool] = True


class CodecUnavailableError(KinesisSdkError):
    """The codec of a compressed aggregate, or of a producer's setting, is not installed. No record of the aggregate was delivered.

    A worker does not skip such a record: it logs this error until a worker with the codec takes the shard.

    Args:
        codec: Name of the codec.
        problem: Description of the missing codec or library, with a remedy.
        stream: Name of the stream; None if unknown, or for a producer's setting. The same applies to the next three.
        shard_id: Shard of the aggregate.
        sequence_number: Sequence number of the aggregate.
        records: Number of user records that the aggregate claims to contain.
    """

    retryable: ClassVar[bool] = True

    def __init__(
        self,
        codec: str,
        problem: str,
        *,
        stream: str | None = None,
        shard_id: str | None = None,
        sequence_number: str | None = None,
        records: int | None = None,
    ) -> None:
        place = " ".join(
            f"{name} {value}"
            for name, value in (("stream", stream), ("shard", shard_id), ("record", sequence_number))
            if value is not None
        )
        super().__init__(
            f"{place}{': ' if place else ''}the codec {codec!r} of compressed aggregates is not available: {problem}"
        )
        self.codec = codec
        self.problem = problem
        self.stream = stream
        self.shard_id = shard_id
        self.sequence_number = sequence_number
        self.records = records

    def located(
        self,
        *,
        stream: str | None = None,
        shard_id: str | None = None,
        sequence_number: str | None = None,
        records: int | None = None,
    ) -> CodecUnavailableError:
        """Return this error with more facts about the aggregate; None leaves a fact unchanged. See the class for the arguments."""
        found = CodecUnavailableError(
            self.codec,
            self.problem,
            stream=stream or self.stream,
            shard_id=shard_id or self.shard_id,
            sequence_number=sequence_number or self.sequence_number,
            records=self.records if records is None else records,
        )
        found.__cause__ = self.__cause__
        return found


class SchemaRegistryError(KinesisSdkError):
    """The schema registry has no such schema or schema version, or rejects it."""


class SchemaPendingError(SchemaRegistryError):
    """The schema registry has not finished checking the compatibility of a schema version."""

    retryable: ClassVar[bool] = True


class InvalidEventError(KinesisSdkError, ValueError):
    """A Lambda function was invoked with an event that is not from Kinesis or Firehose, or is damaged.

    Args:
        place: Path of the field in the event, for example ``Records[0].kinesis.data``.
        problem: Problem with the value, and accepted values. Never contains the payload.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem


class AwsError(KinesisSdkError):
    """A call to an AWS service failed.

    User names and passwords in URLs (of a proxy in front of the service) are removed from every text.

    Args:
        message: Message of the service, or of the transport error.
        operation: API operation, for example ``PutRecords``.
        code: Error code of the service, or the name of the transport error.
        endpoint: Endpoint URL of the client that made the call; None if unknown.
        status: HTTP status; None if there was no response.
        request_id: Request id of the response; None if there was none.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        code: str = "",
        endpoint: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        message = without_userinfo(message)
        endpoint = without_userinfo(endpoint) if endpoint else endpoint
        where = f" at {endpoint}" if endpoint else ""
        what = f"{operation}{where}: " if operation else ""
        label = f"{code}: " if code and not message.startswith(code) else ""
        super().__init__(f"{what}{label}{message}")
        self.operation = operation
        self.code = code
        self.message = message
        self.endpoint = endpoint
        self.status = status
        self.request_id = request_id


class PermanentAwsError(AwsError):
    """The call keeps failing until its cause is fixed."""


class ResourceNotFoundError(PermanentAwsError):
    """The stream, shard, consumer or table does not exist (in this region and account)."""


class InvalidPositionError(PermanentAwsError):
    """A shard cannot be read from a position: a checkpoint of another stream, a damaged checkpoint, or an unknown time."""


class AwsConfigError(PermanentAwsError):
    """Region or credentials are missing, or the service does not accept them."""


class ThrottledError(AwsError):
    """The request was throttled."""

    retryable: ClassVar[bool] = True


class ConditionFailedError(AwsError):
    """A conditional write failed because the item is not in the expected state.

    Attributes:
        item: The current item, in DynamoDB's wire form; None if DynamoDB did not return it.
    """

    def __init__(self, message: str, *, item: Mapping[str, Any] | None = None, **context: Any) -> None:
        super().__init__(message, **context)
        self.item = item


class ExpiredIteratorError(AwsError):
    """A shard iterator is older than five minutes; reading continues with a new iterator at the last position."""

    retryable: ClassVar[bool] = True


class TransientAwsError(AwsError):
    """A failure that is usually temporary: 5xx, a timeout, a broken connection. The call may have taken effect."""

    retryable: ClassVar[bool] = True


class EndpointUnreachableError(TransientAwsError):
    """The endpoint does not respond: connection refused, or unknown host name. Nothing was sent."""


class ProtocolError(KinesisSdkError):
    """A response that violates the contract of the API; the call is retried."""

    retryable: ClassVar[bool] = True


class ProducerError(KinesisSdkError):
    """Base of the errors that the producer raises or sets on futures."""


class RecordFailedError(ProducerError):
    """A record failed permanently; the error is set only on the future of that record.

    Args:
        message: One sentence with the actual cause.
        stream: Name of the stream.
        partition_key: Partition key of the record; None if it has none.
        attempts: All attempts in order; the actual cause is the last attempt that is not an expiry.
        maybe_stored: With ``idempotent=True``, whether an attempt may have stored the record; None if unknown, and always None without
            that setting. To put the record again, use `Producer.put_again`.
    """

    def __init__(
        self,
        message: str,
        *,
        stream: str,
        partition_key: str | None,
        attempts: tuple[Attempt, ...],
        maybe_stored: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.stream = stream
        self.partition_key = partition_key
        self.attempts = attempts
        self.maybe_stored = maybe_stored


class PutManyError(ProducerError):
    """`put_many` stopped at a record: earlier records are accepted; this record and later records are not.

    Its ``__cause__`` is the error that `put` would have raised for that record (or the error of the iterable).

    Args:
        message: One sentence with the cause.
        index: Index of the first record that was not accepted, from 0.
        accepted: Futures of the accepted records. The futures are left out when the error is pickled or copied.
    """

    def __init__(self, message: str, *, index: int, accepted: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.index = index
        self.accepted = accepted

    def __reduce__(self) -> tuple[Any, ...]:
        # Futures cannot be moved to another process.
        return (_restore, (type(self), self.args), {**self.__dict__, "accepted": ()})


class BufferFullError(ProducerError):
    """The producer's buffer is full, and no room became available within the timeout."""

    retryable: ClassVar[bool] = True


class SpoolError(ProducerError):
    """A failed record could not be spooled; the message names the file and the reason."""


class ProducerClosedError(ProducerError):
    """The producer is closed, or it belongs to the parent of this forked process."""


class DeadLetterError(KinesisSdkError):
    """A store of dead letters cannot be read or written. The message names the store and no payload."""

    retryable: ClassVar[bool] = True


class AdminError(KinesisSdkError):
    """An administrative change was not made, or was not finished in time. The message describes the progress of the change."""


class AuditLogError(AdminError):
    """The audit log cannot be written, so nothing is changed."""


class ChangeRefusedError(AdminError):
    """A change of a lease table would not be safe; nothing was written."""


class ConsumerError(KinesisSdkError):
    """Base of the errors that the consumer raises."""


class LeaseLostError(ConsumerError):
    """This worker no longer holds the lease; another worker resumes from the last checkpoint."""


class LeaseStoreError(ConsumerError):
    """A call to a lease store failed and keeps failing until its cause is fixed; it stops the worker.

    Raised by lease stores on databases other than DynamoDB, see `LeaseStore`.
    """


class LeaseRowRejectedError(LeaseStoreError):
    """A lease store cannot write one row for any worker. The worker releases only this lease; see `LeaseStore`."""


class TransientLeaseStoreError(LeaseStoreError):
    """A call to a lease store failed with a transient error. The call may have taken effect."""

    retryable: ClassVar[bool] = True


class SinkError(ConsumerError):
    """A call to a sink failed and keeps failing until its cause is fixed; it stops the worker. See `Sink`."""


class TransientSinkError(SinkError):
    """A call to a sink failed with a transient error; the batch is processed again. This error never stops a worker."""

    retryable: ClassVar[bool] = True


class UnacknowledgedError(ConsumerError):
    """Too many records of a shard are not acknowledged, so reading it pauses. No policy sets records aside or stops because of this error.

    See `kinesis_sdk.acknowledgement`.
    """

    retryable: ClassVar[bool] = True


class EffectRejectedError(ConsumerError, ValueError):
    """A sink does not accept an effect, and stored nothing of its transaction. The message names the record.

    The effects of a batch are too many or too large for one transaction, a condition of the handler does not hold, or the store rejects
    a value. This error is subject to ``on_handler_error``; `BisectBatch` delivers the batch in smaller parts until the record is alone.
    """


class StreamRecreatedError(ConsumerError):
    """The stream, or the stream of a table, was deleted and recreated; the leases hold checkpoints of the old stream."""


class InvalidCheckpointError(ConsumerError, ValueError):
    """A checkpoint below the last checkpoint, or beyond the delivered records."""


class HandlerError(ConsumerError):
    """The handler failed and the policy is to stop; the original error is the cause."""


class RestartShardError(ConsumerError):
    """Raised by a callback of a handler that cannot continue: its shard starts again at the checkpoint with a new handler.

    The lease is kept. After a pause, which grows until a checkpoint advances, the worker creates a handler, initializes it, and delivers
    all records after the checkpoint again; repeated failures make the calls smaller. This applies with any
    ``ConsumerConfig.on_handler_error``. A handler whose ``initialize``, ``process_records`` or ``shard_ended`` raised this error is not
    called again.
    """
