"""AWS clients: how they are made, which calls we make, and how their failures become ours.

botocore resolves region, credentials and endpoints, `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>`
included; this module invents no variable of its own. Retries are set explicitly, because botocore's default
mode changed between releases and because the data plane has deadlines of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kinesis_sdk._version import __version__
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    ConditionFailedError,
    EndpointUnreachableError,
    ExpiredIteratorError,
    KinesisSdkError,
    PermanentAwsError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
    without_userinfo,
)
from kinesis_sdk.common.truncated_responses import reject_truncated_responses

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

T = TypeVar("T")

_UNREACHABLE_ATTEMPTS = 3
_JSON_SERVICES = ("kinesis", "dynamodb")


# How the protocols are written: `*args: Any, **kwargs: Any` means "any arguments" to a type checker, which is what lets
# the typed clients of boto3-stubs match (`**kwargs: Unpack[...]` does not match `**kwargs: Any` alone). The SDK itself
# passes keywords only, because boto3 accepts nothing else. Responses are mappings, because a TypedDict is not a dict.


class KinesisClient(Protocol):
    """The part of boto3's Kinesis client that the SDK calls. Any object of this shape works."""

    def put_records(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """PutRecords."""
        ...

    def list_shards(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """ListShards."""
        ...

    def describe_stream_summary(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DescribeStreamSummary."""
        ...

    def get_shard_iterator(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetShardIterator."""
        ...

    def get_records(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetRecords."""
        ...


class DynamoDBClient(Protocol):
    """The part of boto3's DynamoDB client that the lease table needs."""

    def create_table(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """CreateTable."""
        ...

    def describe_table(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DescribeTable."""
        ...

    def describe_continuous_backups(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DescribeContinuousBackups."""
        ...

    def update_continuous_backups(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """UpdateContinuousBackups."""
        ...

    def get_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetItem."""
        ...

    def put_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """PutItem."""
        ...

    def update_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """UpdateItem."""
        ...

    def delete_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DeleteItem."""
        ...

    def scan(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Scan."""
        ...


_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "ThrottlingException",
        "Throttling",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "LimitExceededException",
        "KMSThrottlingException",
        "SlowDown",
    }
)
_NOT_FOUND = frozenset({"ResourceNotFoundException", "TableNotFoundException"})
_BAD_IDENTITY = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "MissingAuthenticationTokenException",
        "MissingAuthenticationToken",
        "IncompleteSignatureException",
        "OptInRequired",
    }
)
# Expired credentials are not permanent: botocore refreshes them, the next attempt is signed anew.
_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "InternalError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
        "RequestTimeTooSkewed",
        "RequestExpired",
        "ExpiredToken",
        "ExpiredTokenException",
        "ResourceInUseException",
        "TransactionInProgressException",
        # Somebody's transaction on the same item.
        "TransactionConflictException",
        # The list is begun anew.
        "ExpiredNextTokenException",
    }
)
_OLD_SIGNATURE = ("Signature expired", "Signature not yet current")
"""How messages begin where a signature is right and only its time is not: a process that was frozen between signing and
sending, or a clock that is being set. The next attempt is signed anew."""


# For answers without an HTTP status (entries of PutRecords, events of a subscription): unknown codes are
# given another try there, these would only fail again.
_PERMANENT = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "InvalidArgumentException",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
        "SerializationException",
        "UnknownOperationException",
        "ValidationException",
    }
)


def is_throttle(code: str) -> bool:
    """Return whether an error code says that the service asks for less."""
    return code in _THROTTLED


def service_error(
    code: str,
    message: str,
    *,
    operation: str = "",
    endpoint: str | None = None,
    status: int | None = None,
    request_id: str | None = None,
) -> AwsError:
    """The `AwsError` of the right class for an error code that a service returned.

    Unknown codes count as transient when the HTTP status is 5xx, 408, 429 or unknown, else as permanent.
    """
    context: dict[str, Any] = {
        "operation": operation,
        "code": code,
        "endpoint": endpoint,
        "status": status,
        "request_id": request_id,
    }
    kind: type[AwsError]
    if is_throttle(code):
        kind = ThrottledError
    elif code in _NOT_FOUND:
        kind = ResourceNotFoundError
    elif code == "ConditionalCheckFailedException":
        return ConditionFailedError(message, **context)
    elif code == "ExpiredIteratorException":
        kind = ExpiredIteratorError
    elif code in _BAD_IDENTITY:
        kind = TransientAwsError if message.startswith(_OLD_SIGNATURE) else AwsConfigError
    elif code in _TRANSIENT or (
        code not in _PERMANENT if status is None else status >= 500 or status in (408, 429)
    ):
        kind = TransientAwsError
    else:
        kind = PermanentAwsError
    return kind(message, **context)


def translate_error(error: Exception, operation: str, client: object = None) -> KinesisSdkError:
    """Turn an exception of botocore (or of the socket below it) into one of ours.

    Args:
        error: What the call raised.
        operation: API operation.
        client: The client that was called; its endpoint goes into the message.

    Returns:
        An `AwsError` whose class says whether a repetition makes sense. Errors that are ours already come
        back unchanged.
    """
    if isinstance(error, KinesisSdkError):
        return error
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError

    _hide_userinfo(error)
    endpoint = endpoint_of(client)
    name = type(error).__name__
    context: dict[str, Any] = {"operation": operation, "code": name, "endpoint": endpoint}
    if isinstance(error, boto.ClientError):
        response: dict[str, Any] = dict(error.response)
        details = response.get("Error", {})
        metadata = response.get("ResponseMetadata", {})
        if metadata.get("HTTPStatusCode") == 400 and details.get("Code") == "400":
            # botocore's way to say that there was no error document. The services always send one: it was cut off.
            return TransientAwsError("a refusal without a reason", **{**context, "status": 400})
        translated = service_error(
            str(details.get("Code", "Unknown")),
            str(details.get("Message") or "no message"),
            operation=operation,
            endpoint=endpoint,
            status=metadata.get("HTTPStatusCode"),
            request_id=metadata.get("RequestId"),
        )
        if isinstance(translated, ConditionFailedError):
            translated.item = response.get("Item")
        return translated
    if isinstance(
        error,
        (
            boto.NoCredentialsError,
            boto.PartialCredentialsError,
            boto.NoAuthTokenError,
            boto.TokenRetrievalError,
            boto.SSOError,
        ),
    ):
        return AwsConfigError(f"no usable AWS credentials: {error}", **context)
    if isinstance(error, (boto.CredentialRetrievalError, boto.MetadataRetrievalError)):
        # Credentials were there and could not be refreshed: an outage of the metadata service or of STS
        # passes, and must not fail records that have time left.
        return TransientAwsError(f"no usable AWS credentials now: {error}", **context)
    if isinstance(error, (boto.NoRegionError, boto.UnknownEndpointError)):
        return AwsConfigError(str(error), **context)
    if isinstance(error, (boto.ReadTimeoutError, boto.ConnectionClosedError)):
        return TransientAwsError(f"{error} (the call may have had effect)", **context)
    if isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)):
        return EndpointUnreachableError(str(error), **context)
    if isinstance(
        error,
        (
            boto.HTTPClientError,
            boto.IncompleteReadError,
            boto.ChecksumError,
            boto.FlexibleChecksumError,
            ResponseParserError,
            OSError,
        ),
    ):
        return TransientAwsError(str(error) or name, **context)
    if isinstance(error, boto.BotoCoreError):
        return PermanentAwsError(str(error), **context)
    return TransientAwsError(f"unexpected {name}: {error}", **context)


def _hide_userinfo(error: Exception) -> None:
    """Remove passwords in URLs from an exception of botocore: it is our error's cause, and logged with a traceback."""
    error.args = tuple(without_userinfo(part) if isinstance(part, str) else part for part in error.args)
    fields = getattr(error, "kwargs", None)  # what botocore pickles and formats
    if isinstance(fields, dict):
        fields.update(
            (name, without_userinfo(value)) for name, value in fields.items() if isinstance(value, str)
        )


@contextmanager
def translate_errors(operation: str, client: object = None) -> Iterator[None]:
    """Run a block that makes one AWS call; whatever it raises leaves as an `AwsError`."""
    try:
        yield
    except KinesisSdkError:
        raise
    except Exception as error:
        raise translate_error(error, operation, client) from error


def endpoint_of(client: object) -> str | None:
    """Endpoint URL of a boto3 client without user name and password, or None for objects that have none."""
    endpoint = getattr(getattr(client, "meta", None), "endpoint_url", None)
    return without_userinfo(str(endpoint)) if endpoint else None


def call_with_retries(
    call: Callable[[], T],
    *,
    operation: str,
    client: object = None,
    timeout: float = 60.0,
    attempts: int = 10,
    sleep: Callable[[float], None] | None = None,
) -> T:
    """Make a control-plane call, repeating retryable failures with jittered exponential backoff.

    An endpoint that nobody listens on is reported after three attempts: waiting does not bring it up.

    Args:
        call: The call.
        operation: API operation, for messages.
        client: Client, for messages.
        timeout: Most seconds to go on for.
        attempts: Most calls to make.
        sleep: Replaces `time.sleep`, for tests and for waits that must be interruptible.

    Raises:
        AwsError: The last failure.
    """
    import tenacity

    unreachable = 0

    def guarded() -> T:
        nonlocal unreachable
        try:
            with translate_errors(operation, client):
                return call()
        except EndpointUnreachableError:
            unreachable += 1
            raise

    def worth_it(error: BaseException) -> bool:
        return isinstance(error, KinesisSdkError) and error.retryable and unreachable < _UNREACHABLE_ATTEMPTS

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(worth_it),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
        stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_after_delay(timeout),
        sleep=sleep or time.sleep,
        reraise=True,
    )
    return retrying(guarded)


def make_client(
    service: str,
    *,
    session: boto3.Session | None = None,
    region_name: str | None = None,
    endpoint_url: str | None = None,
    config: Config | None = None,
    max_pool_connections: int = 24,
    connect_timeout: float = 6.0,
    read_timeout: float = 6.0,
) -> Any:
    """A boto3 client with everything set that must not change under us.

    Args:
        service: ``kinesis``, ``dynamodb`` or ``cloudwatch``.
        session: Session whose credentials and region are used; a new default session if None.
        region_name: Region; else the session's.
        endpoint_url: Endpoint; else botocore's own resolution (``AWS_ENDPOINT_URL_…`` and profile).
        config: Settings that win over ours where both say something.
        max_pool_connections: Connections kept; at least the number of concurrent calls.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for an answer.

    Raises:
        AwsConfigError: No region, an unknown profile, a bad endpoint URL.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    ours = Config(
        # One attempt: the SDK repeats calls itself, by its own deadlines and with its own backoff.
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=max_pool_connections,
        tcp_keepalive=True,
        user_agent_extra=f"kinesis-sdk/{__version__}",
    )
    try:
        owner: Any = session or boto3.Session()
        client = owner.client(
            service,
            region_name=region_name,
            endpoint_url=endpoint_url,
            config=ours.merge(config) if config else ours,
        )
    except (BotoCoreError, ValueError) as error:
        _hide_userinfo(error)
        raise AwsConfigError(
            f"cannot make a {service} client: {error}",
            operation="",
            code=type(error).__name__,
            endpoint=endpoint_url,
        ) from error
    if service in _JSON_SERVICES:
        reject_truncated_responses(client)
    return client
