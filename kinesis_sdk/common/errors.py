"""Every error that the SDK raises, in one tree.

```
KinesisSdkError                      retryable: would the same call later have a chance?
├── ConfigError (ValueError)         a configuration field is out of its range
├── InvalidRecordError (ValueError)  a record that the service would refuse
├── AwsError                         a call to AWS failed: operation, code, message, endpoint
│   ├── PermanentAwsError            the same call fails again (missing stream, access denied …)
│   │   ├── ResourceNotFoundError    the stream, table or shard does not exist
│   │   ├── InvalidPositionError         a shard has no such position to read from
│   │   └── AwsConfigError           no region, no credentials, wrong credentials
│   ├── ThrottledError               the service asks for less            (retryable)
│   ├── ConditionFailedError         a conditional write lost; carries the item if the service sent it
│   ├── ExpiredIteratorError         a shard iterator is too old          (retryable with a new iterator)
│   └── TransientAwsError            5xx, timeouts, connection trouble    (retryable)
│       └── EndpointUnreachableError nothing answers at the endpoint      (retryable)
├── ProtocolError                    an answer of the service that breaks its own contract (retryable)
├── ProducerError
│   ├── RecordFailedError            a record's final failure: stream, key, attempts, real cause
│   ├── PutManyError                 put_many stopped: index, accepted futures, the real cause
│   ├── BufferFullError              the producer's buffer is full (retryable)
│   ├── SpoolError                   an unsent record could not be spooled: file full, disk full
│   └── ProducerClosedError          put after close, or closed before the record was acknowledged
└── ConsumerError
    ├── LeaseLostError               this worker does not hold the lease any more
    ├── StreamRecreatedError         the lease table belongs to a former stream of this name
    ├── InvalidCheckpointError (ValueError)  a checkpoint outside the delivered range
    └── HandlerError                 the handler failed and the policy says stop
```

Catch at any level. Errors from botocore never leave the SDK bare: they are translated once, by
`kinesis_sdk.common.aws.translate_error`, and stay reachable as ``__cause__``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from kinesis_sdk.common.records import Attempt

_SHOWN = 200
"""Most characters of a refused value that a message repeats."""


def _shown(value: object) -> str:
    """``repr`` for a message, bounded."""
    try:
        text = repr(value)
    except ValueError:  # an int, or one inside, with more digits than Python converts to text
        return f"a huge {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


_USERINFO = re.compile(r"(?<=://)\S*@")
"""User name and password of a URL. Up to the last ``@``: an unescaped ``/`` may be part of a password."""


def without_userinfo(text: str) -> str:
    """Return the text without the user names and passwords of the URLs in it (``http://name:password@host``)."""
    return _USERINFO.sub("", text) if "@" in text else text


def _restore(kind: type[KinesisSdkError], args: tuple[object, ...]) -> KinesisSdkError:
    """An error as it was pickled or copied; its attributes follow as state."""
    return kind.__new__(kind, *args)


class KinesisSdkError(Exception):
    """Root of every error of this package.

    Every error can be copied and pickled with its attributes: it crosses process borders in multiprocessing
    and Spark. Its ``__cause__`` stays behind, as it does for every Python exception.

    Attributes:
        retryable: Whether repeating the same action later has a chance of success.
    """

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own would call the class with the finished message alone, which most of ours refuse.
        return (_restore, (type(self), self.args), self.__dict__)


class ConfigError(KinesisSdkError, ValueError):
    """A configuration field has a value outside of its accepted range.

    Args:
        field: Name of the field as the user writes it.
        value: What was given.
        accepted: What is accepted, in words ("1 to 500").
    """

    def __init__(self, field: str, value: object, accepted: str) -> None:
        super().__init__(f"{field}={_shown(value)} is not accepted: expected {accepted}")
        self.field = field
        self.value = value
        self.accepted = accepted


class InvalidRecordError(KinesisSdkError, ValueError):
    """A record that the service would refuse; raised by ``put`` itself, before anything is buffered.

    The message never contains the payload.

    Args:
        field: ``stream``, ``partition_key``, ``explicit_hash_key`` or ``data``.
        problem: What is wrong, and what is accepted.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class AwsError(KinesisSdkError):
    """A call to an AWS service failed.

    A user name and password in a URL (of a proxy in front of the service) are left out of every text.

    Args:
        message: What the service (or the transport) said.
        operation: API operation, for example ``PutRecords``.
        code: Error code of the service, or the name of the transport error.
        endpoint: Endpoint URL of the client that made the call, if known.
        status: HTTP status, if there was an answer.
        request_id: Request id of the service, if there was one.
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
    """The same call will fail again until somebody changes something."""


class ResourceNotFoundError(PermanentAwsError):
    """The stream, shard, consumer or table does not exist (in this region and account)."""


class InvalidPositionError(PermanentAwsError):
    """A shard has no such position to read from: a checkpoint of another stream, a damaged one, an unknown instant."""


class AwsConfigError(PermanentAwsError):
    """Region or credentials are missing, or the service does not accept them."""


class ThrottledError(AwsError):
    """The service asks for fewer calls or fewer bytes."""

    retryable: ClassVar[bool] = True


class ConditionFailedError(AwsError):
    """A conditional write found another state than expected.

    Attributes:
        item: The item as it is, in DynamoDB's wire form, where the service returned it.
    """

    def __init__(self, message: str, *, item: Mapping[str, Any] | None = None, **context: Any) -> None:
        super().__init__(message, **context)
        self.item = item


class ExpiredIteratorError(AwsError):
    """A shard iterator is older than five minutes; a new one at the last position continues."""

    retryable: ClassVar[bool] = True


class TransientAwsError(AwsError):
    """A failure that usually passes: 5xx, a timeout, a broken connection. The call may have had effect."""

    retryable: ClassVar[bool] = True


class EndpointUnreachableError(TransientAwsError):
    """Nothing answers at the endpoint: refused connection or unknown host name. Nothing was sent."""


class ProtocolError(KinesisSdkError):
    """An answer of the service that breaks its own contract; the call is repeated."""

    retryable: ClassVar[bool] = True


class ProducerError(KinesisSdkError):
    """Base of what the producer raises or puts into futures."""


class RecordFailedError(ProducerError):
    """A record reached its final failure; it is set on the future of that record only.

    Args:
        message: One sentence with the real cause.
        stream: Name of the stream.
        partition_key: Partition key of the record.
        attempts: Every attempt in order; the real cause is the last one that is not an expiry.
    """

    def __init__(
        self, message: str, *, stream: str, partition_key: str, attempts: tuple[Attempt, ...]
    ) -> None:
        super().__init__(message)
        self.stream = stream
        self.partition_key = partition_key
        self.attempts = attempts


class PutManyError(ProducerError):
    """`put_many` stopped at a record: those before it are accepted, it and those after it are not.

    Its ``__cause__`` is what `put` would have raised for that record (or what the iterable raised).

    Args:
        message: One sentence with the cause.
        index: Index of the first record that was not accepted, from 0.
        accepted: Futures of the records before it. They stay behind when the error is pickled or copied.
    """

    def __init__(self, message: str, *, index: int, accepted: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.index = index
        self.accepted = accepted

    def __reduce__(self) -> tuple[Any, ...]:
        # Futures belong to their process.
        return (_restore, (type(self), self.args), {**self.__dict__, "accepted": ()})


class BufferFullError(ProducerError):
    """The producer's buffer is at its bound and did not drain in the time given."""

    retryable: ClassVar[bool] = True


class SpoolError(ProducerError):
    """A record that was not stored could not be spooled either; the message names the file, and says why."""


class ProducerClosedError(ProducerError):
    """The producer is closed (or belongs to the parent of this forked process)."""


class ConsumerError(KinesisSdkError):
    """Base of what the consumer raises."""


class LeaseLostError(ConsumerError):
    """This worker does not hold the lease any more; another one continues from the last checkpoint."""


class StreamRecreatedError(ConsumerError):
    """The stream was deleted and made anew; its lease table still holds positions in the former one."""


class InvalidCheckpointError(ConsumerError, ValueError):
    """A checkpoint below the last one or beyond what was delivered."""


class HandlerError(ConsumerError):
    """The handler failed and its failure policy is to stop; the original error is the cause."""
