"""AWS clients: their settings, the SDK's calls, translation of errors, retries of control-plane calls.

botocore resolves region, credentials and endpoints, including `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>`; the SDK
adds no environment variable of its own. Retries are set explicitly, because botocore's default mode changed between
releases, and because the data plane has deadlines of its own.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kinesis_sdk._version import __version__
from kinesis_sdk.common.backoff import Backoff
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
    from botocore.config import Config

T = TypeVar("T")

_UNREACHABLE_ATTEMPTS = 3
_RETRIES = Backoff(0.2, 5.0)
_ACCOUNT_HOST = re.compile(r"[0-9]{12}\.(?:data-kinesis|control-kinesis|ddb|streams-ddb)\.")
_URL_IN_TEXT = re.compile(r"(?P<url>https?://(?P<host>[^/\s\"':]+)(?::[0-9]+)?/?)")
_JSON_SERVICES = ("kinesis", "dynamodb", "glue")


# On the signatures of the protocols: `*args: Any, **kwargs: Any` means "any arguments" to a type checker, so the typed
# clients of boto3-stubs match (`**kwargs: Unpack[...]` does not match `**kwargs: Any` alone). The SDK itself passes only
# keywords, because boto3 accepts nothing else. Responses are mappings, because a TypedDict is not a dict.


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


class AwsSession(Protocol):
    """Factory of clients: a ``boto3.Session``, or any object of this shape, such as `kinesis_sdk.testing.FakeAws`."""

    def client(self, *args: Any, **kwargs: Any) -> Any:
        """Return a client of the service that the first argument names."""
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
# Expired credentials are not permanent: botocore refreshes them, and the next attempt has a new signature.
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
        # Another transaction on the same item is in progress.
        "TransactionConflictException",
        # The listing restarts from its first page.
        "ExpiredNextTokenException",
    }
)

DENIALS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "KMSAccessDeniedException",
        "NotAuthorized",
        "NotAuthorizedException",
        "UnauthorizedOperation",
    }
)
"""Error codes of denied access."""

_OLD_SIGNATURE = ("Signature expired", "Signature not yet current")
"""Start of error messages for a valid signature with a wrong time: the process was frozen between signing and sending,
or its clock is being set. The next attempt has a new signature."""


# For errors without an HTTP status (entries of PutRecords, events of a subscription). There, unknown codes are retried;
# requests with these codes would only fail again.
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
    """Return whether an error code means that the request was throttled."""
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
    """Return an `AwsError` of the right class for an error code that a service returned.

    An unknown code is transient if the HTTP status is 5xx, 408, 429 or unknown, otherwise permanent.

    Args:
        code: Error code, such as ``ThrottlingException``.
        message: Message of the service.
        operation: Name of the call.
        endpoint: Endpoint of the call; None if unknown.
        status: HTTP status; None if there was no response.
        request_id: Id of the request, for AWS support; None if there is none.
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
    """Translate an exception of botocore (or of the socket below it) into an error of the SDK.

    Args:
        error: Exception that the call raised.
        operation: API operation, for example ``ListShards``.
        client: Client that was called; its endpoint becomes part of the message.

    Returns:
        An `AwsError` whose class shows whether a retry may succeed. An error of the SDK is returned unchanged.
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
            # With this code, botocore reports a response without an error document. The services always send an error
            # document, so the response was truncated.
            return TransientAwsError("truncated error response", **{**context, "status": 400})
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
        # Credentials exist but could not be refreshed. An outage of the metadata service or of STS passes, and must not
        # fail records whose time-to-live has not expired.
        return TransientAwsError(f"cannot refresh AWS credentials: {error}", **context)
    if isinstance(error, (boto.NoRegionError, boto.UnknownEndpointError)):
        return AwsConfigError(str(error), **context)
    if isinstance(error, (boto.ReadTimeoutError, boto.ConnectionClosedError)):
        return TransientAwsError(f"{error} (the call may have taken effect)", **context)
    if isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)):
        return EndpointUnreachableError(f"{error}{_who_chose(str(error))}", **context)
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


def is_of_account(host: str) -> bool:
    """Return whether a host belongs to an account, such as ``123456789012.data-kinesis.eu-west-1.amazonaws.com``."""
    return _ACCOUNT_HOST.match(host) is not None


def _who_chose(message: str) -> str:
    """Return a hint to the setting behind the endpoint in a message, which users tend to forget; empty for the region's endpoint."""
    found = _URL_IN_TEXT.search(message)
    if found is None:
        return ""
    if is_of_account(found["host"]):
        return ". boto3 uses this host because it knows the account; AWS_ACCOUNT_ID_ENDPOINT_MODE=disabled uses that of the region"
    for name, value in sorted(os.environ.items()):
        if name.startswith("AWS_ENDPOINT_URL") and value.rstrip("/") == found["url"].rstrip("/"):
            return f" ({name} in the environment sets it)"
    return ""


def _hide_userinfo(error: Exception) -> None:
    """Remove passwords in URLs from an exception of botocore: it becomes the cause of an error and may be logged."""
    error.args = tuple(without_userinfo(part) if isinstance(part, str) else part for part in error.args)
    fields = getattr(error, "kwargs", None)  # botocore pickles and formats these values
    if isinstance(fields, dict):
        fields.update(
            (name, without_userinfo(value)) for name, value in fields.items() if isinstance(value, str)
        )


class translate_errors:  # noqa: N801 - used as a function; a generator for each call costs three times as much
    """Run a block that makes one AWS call; every exception is raised as a `KinesisSdkError`.

    Args:
        operation: Name of the call, such as ``GetRecords``, for the error.
        client: The boto3 client, whose endpoint the error names; None if unknown.
    """

    __slots__ = ("_client", "_operation")

    def __init__(self, operation: str, client: object = None) -> None:
        self._operation = operation
        self._client = client

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, KinesisSdkError):
            raise translate_error(error, self._operation, self._client) from error


def endpoint_of(client: object) -> str | None:
    """Return the endpoint URL of a boto3 client without user name and password; None for an object without an endpoint URL."""
    endpoint = getattr(getattr(client, "meta", None), "endpoint_url", None)
    return without_userinfo(str(endpoint)) if endpoint else None


def call_with_retries(
    call: Callable[[], T],
    *,
    operation: str | None,
    client: object = None,
    timeout: float = 60.0,
    attempts: int = 10,
    sleep: Callable[[float], None] | None = None,
    rng: random.Random | None = None,
) -> T:
    """Make a control-plane call, and retry retryable failures with jittered exponential backoff (0.2 to 5 s).

    Every control-plane call that blocks its thread is retried here. The loops of the producer and of the consumer do not
    block: they compute the time of the next attempt with `kinesis_sdk.common.backoff`, and their tests run in virtual time.
    An unreachable endpoint is reported after three attempts, because waiting rarely helps.

    Args:
        call: Function that makes the call.
        operation: API operation, for messages. With None, the call itself must raise a `KinesisSdkError`; any other exception is a bug and
            is raised unchanged.
        client: Client that makes the call, for messages; None if there is none.
        timeout: Maximum seconds, after which no further attempt is made.
        attempts: Maximum number of attempts, at least 1.
        sleep: Called with the seconds to wait before an attempt; `time.sleep` by default. Pass a replacement for tests
            or for waits that must be interruptible.
        rng: Source of jitter; a generator of its own by default. Pass a generator for waits that tests replay.

    Returns:
        The result of the first successful call.

    Raises:
        KinesisSdkError: Error of the last attempt, usually an `AwsError`.
    """
    unreachable = 0

    def guarded() -> T:
        nonlocal unreachable
        try:
            if operation is None:
                return call()
            with translate_errors(operation, client):
                return call()
        except EndpointUnreachableError:
            unreachable += 1
            raise

    def may_succeed(error: BaseException) -> bool:
        return isinstance(error, KinesisSdkError) and error.retryable and unreachable < _UNREACHABLE_ATTEMPTS

    try:
        return guarded()
    except KinesisSdkError as error:
        if attempts <= 1 or not may_succeed(error):
            raise
        first: list[KinesisSdkError] = [error]

    # Imported only now: almost every call succeeds at once and does not need it.
    import tenacity

    jitter = rng or random.Random()

    def from_the_first_failure_on() -> T:
        if first:
            raise first.pop()
        return guarded()

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(may_succeed),
        wait=lambda state: _RETRIES.pause(state.attempt_number, jitter),
        stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_after_delay(timeout),
        sleep=sleep or time.sleep,
        reraise=True,
    )
    return retrying(from_the_first_failure_on)


def make_client(
    service: str,
    *,
    session: AwsSession | None = None,
    region_name: str | None = None,
    endpoint_url: str | None = None,
    config: Config | None = None,
    max_pool_connections: int = 24,
    connect_timeout: float = 6.0,
    read_timeout: float = 6.0,
) -> Any:
    """Create a boto3 client whose retries, timeouts and connections do not depend on botocore's defaults.

    Args:
        service: ``kinesis``, ``dynamodb``, ``cloudwatch`` or ``glue``.
        session: Session whose credentials and region are used; a new default session if None.
        region_name: Region; the session's if None.
        endpoint_url: Endpoint; if None, botocore resolves it (``AWS_ENDPOINT_URL_…``, profile).
        config: Settings that override the SDK's settings.
        max_pool_connections: Number of connections that are kept open; at least the number of concurrent calls.
        connect_timeout: Maximum seconds to wait for a connection.
        read_timeout: Maximum seconds to wait for a response.

    Raises:
        AwsConfigError: If there is no region, the profile does not exist, or the endpoint URL is invalid.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    ours = Config(
        # One attempt: the SDK retries calls itself, with its own deadlines and backoff.
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=max_pool_connections,
        tcp_keepalive=True,
        user_agent_extra=f"kinesis-sdk/{__version__}",
    )
    try:
        owner: Any = session
        if owner is None:
            import boto3

            owner = boto3.Session()
        client = owner.client(
            service,
            region_name=region_name,
            endpoint_url=endpoint_url,
            config=ours.merge(config) if config else ours,
        )
    except (BotoCoreError, ValueError) as error:
        _hide_userinfo(error)
        raise AwsConfigError(
            f"cannot create a {service} client: {error}",
            operation="",
            code=type(error).__name__,
            endpoint=endpoint_url,
        ) from error
    if service in _JSON_SERVICES:
        reject_truncated_responses(client)
    return client
