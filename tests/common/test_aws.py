from __future__ import annotations

import pickle
import traceback
from typing import Any
from unittest.mock import Mock

import boto3
import botocore.session
import pytest
from botocore import exceptions as boto
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.parsers import ResponseParserError

from kinesis_sdk._version import __version__
from kinesis_sdk.common.aws import (
    call_with_retries,
    endpoint_of,
    make_client,
    service_error,
    translate_error,
    translate_errors,
)
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    BufferFullError,
    ConditionFailedError,
    EndpointUnreachableError,
    ExpiredIteratorError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
)

URL = "http://kinesis.test:4567"


class Client:
    """Anything with a ``meta.endpoint_url``."""

    class meta:  # noqa: N801 - boto3's name
        endpoint_url = URL


def client_error(code: str | None, status: int | None = 400, **more: Any) -> boto.ClientError:
    error = {"Message": "the message"} | ({} if code is None else {"Code": code})
    metadata = {"RequestId": "r-1"} | ({} if status is None else {"HTTPStatusCode": status})
    return boto.ClientError({"Error": error, "ResponseMetadata": metadata, **more}, "PutRecords")


# -- responses of the service --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ProvisionedThroughputExceededException", 400, ThrottledError),
        ("LimitExceededException", 400, ThrottledError),
        ("ThrottlingException", 400, ThrottledError),
        ("KMSThrottlingException", 400, ThrottledError),
        ("RequestLimitExceeded", 503, ThrottledError),
        ("ResourceNotFoundException", 400, ResourceNotFoundError),
        ("ConditionalCheckFailedException", 400, ConditionFailedError),
        ("ExpiredIteratorException", 400, ExpiredIteratorError),
        ("UnrecognizedClientException", 400, AwsConfigError),
        ("InvalidSignatureException", 400, AwsConfigError),
        ("MissingAuthenticationTokenException", 400, AwsConfigError),
        ("ExpiredTokenException", 400, TransientAwsError),
        ("ResourceInUseException", 400, TransientAwsError),
        ("ExpiredNextTokenException", 400, TransientAwsError),
        ("TransactionConflictException", 400, TransientAwsError),
        ("InternalFailure", 500, TransientAwsError),
        ("InternalFailure", None, TransientAwsError),
        ("ServiceUnavailable", 503, TransientAwsError),
        ("Unheard", 500, TransientAwsError),
        ("Unheard", 599, TransientAwsError),
        ("Unheard", 429, TransientAwsError),
        ("Unheard", 408, TransientAwsError),
        ("Unheard", None, TransientAwsError),
        ("Unheard", 400, PermanentAwsError),
        ("Unheard", 403, PermanentAwsError),
        ("AccessDeniedException", 400, PermanentAwsError),
        ("AccessDeniedException", None, PermanentAwsError),
        ("ValidationException", 400, PermanentAwsError),
        ("ValidationException", None, PermanentAwsError),
        ("InvalidArgumentException", 400, PermanentAwsError),
        ("KMSAccessDeniedException", None, PermanentAwsError),
    ],
)
def test_codes_of_the_service(code: str, status: int | None, kind: type[AwsError]) -> None:
    original = client_error(code, status)
    error = translate_error(original, "PutRecords", Client())
    assert type(error) is kind
    assert isinstance(error, AwsError)
    assert (error.operation, error.code, error.status, error.request_id, error.endpoint, error.message) == (
        "PutRecords",
        code,
        status,
        "r-1",
        URL,
        "the message",
    )
    assert str(error) == f"PutRecords at {URL}: {code}: the message"
    entry = service_error(code, "the message", operation="PutRecords", status=status)
    assert type(entry) is kind
    assert entry.retryable is error.retryable


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Signature expired: 20261120T071402Z is now earlier than 20261120T071500Z", TransientAwsError),
        (
            "Signature not yet current: 20261120T073402Z is still later than 20261120T072500Z",
            TransientAwsError,
        ),
        ("The request signature we calculated does not match the signature you provided.", AwsConfigError),
    ],
)
def test_a_signature_that_is_only_old_is_renewed(message: str, kind: type[AwsError]) -> None:
    """A process that was frozen between signing and sending has no wrong credentials."""
    assert type(service_error("InvalidSignatureException", message, status=400)) is kind


def test_a_lost_condition_carries_the_item() -> None:
    row = {"leaseKey": {"S": "shardId-000000000000"}, "leaseCounter": {"N": "7"}}
    error = translate_error(client_error("ConditionalCheckFailedException", Item=row), "UpdateItem")
    assert isinstance(error, ConditionFailedError)
    assert error.item == row
    bare = translate_error(client_error("ConditionalCheckFailedException"), "UpdateItem")
    assert isinstance(bare, ConditionFailedError)
    assert bare.item is None


def test_responses_without_details() -> None:
    error = translate_error(boto.ClientError({}, "GetRecords"), "GetRecords")
    assert type(error) is TransientAwsError
    assert (error.operation, error.code) == ("GetRecords", "Unknown")
    html = translate_error(client_error(None, 403), "GetRecords")
    assert type(html) is PermanentAwsError
    event = boto.EventStreamError(
        {"Error": {"Code": "ResourceNotFoundException", "Message": "gone"}}, "SubscribeToShard"
    )
    assert type(translate_error(event, "SubscribeToShard")) is ResourceNotFoundError


# -- failures below the service ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "kind"),
    [
        (boto.NoCredentialsError(), AwsConfigError),
        (boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), AwsConfigError),
        (boto.NoAuthTokenError(), AwsConfigError),
        (boto.TokenRetrievalError(provider="sso", error_msg="m"), AwsConfigError),
        (boto.UnauthorizedSSOTokenError(), AwsConfigError),
        (boto.SSOTokenLoadError(error_msg="m"), AwsConfigError),
        (boto.NoRegionError(), AwsConfigError),
        (boto.UnknownEndpointError(service_name="kinesis", region_name="x"), AwsConfigError),
        (boto.CredentialRetrievalError(provider="iam-role", error_msg="m"), TransientAwsError),
        (boto.MetadataRetrievalError(error_msg="m"), TransientAwsError),
        (boto.ReadTimeoutError(endpoint_url=URL), TransientAwsError),
        (boto.ConnectionClosedError(endpoint_url=URL), TransientAwsError),
        (boto.HTTPClientError(error="m"), TransientAwsError),
        (boto.ResponseStreamingError(error="m"), TransientAwsError),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), TransientAwsError),
        (
            boto.ChecksumError(checksum_type="crc32", expected_checksum=1, actual_checksum=2),
            TransientAwsError,
        ),
        (boto.SSLError(endpoint_url=URL, error="m"), TransientAwsError),
        (ResponseParserError("m"), TransientAwsError),
        (ConnectionResetError("m"), TransientAwsError),
        (TimeoutError(), TransientAwsError),
        (boto.EndpointConnectionError(endpoint_url=URL), EndpointUnreachableError),
        (boto.ConnectTimeoutError(endpoint_url=URL), EndpointUnreachableError),
        (boto.ProxyConnectionError(proxy_url=URL), EndpointUnreachableError),
        (boto.ParamValidationError(report="m"), PermanentAwsError),
        (boto.DataNotFoundError(data_path="m"), PermanentAwsError),
        (boto.InvalidRegionError(region_name="?"), PermanentAwsError),
        (RuntimeError("m"), TransientAwsError),
        (KeyError("m"), TransientAwsError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_below_the_service(original: Exception, kind: type[AwsError]) -> None:
    error = translate_error(original, "GetRecords", Client())
    assert type(error) is kind
    assert isinstance(error, AwsError)
    assert error.code == type(original).__name__
    assert error.endpoint == URL
    assert error.status is None
    assert "GetRecords" in str(error)
    assert URL in str(error)


@pytest.mark.parametrize(
    "original", [boto.ReadTimeoutError(endpoint_url=URL), boto.ConnectionClosedError(endpoint_url=URL)]
)
def test_a_call_that_may_have_had_effect_says_so(original: Exception) -> None:
    assert "may have taken effect" in str(translate_error(original, "PutRecords"))


def test_our_own_errors_pass_unchanged() -> None:
    ours = BufferFullError("full")
    assert translate_error(ours, "PutRecords") is ours
    with pytest.raises(BufferFullError) as caught, translate_errors("PutRecords"):
        raise ours
    assert caught.value is ours
    assert ours.__cause__ is None


def test_the_original_stays_reachable() -> None:
    original = client_error("AccessDeniedException")
    with pytest.raises(PermanentAwsError) as caught, translate_errors("PutRecords", Client()):
        raise original
    assert caught.value.__cause__ is original


def test_interrupts_are_not_translated() -> None:
    with pytest.raises(KeyboardInterrupt), translate_errors("PutRecords"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("client", [None, object(), type("Bare", (), {"meta": None})()])
def test_clients_without_an_endpoint(client: object) -> None:
    assert endpoint_of(client) is None
    assert endpoint_of(Client()) == URL


SECRET_URL = "http://proxy-user:pass/w@rd@kinesis.test:4567"


@pytest.mark.parametrize(
    "original",
    [
        boto.EndpointConnectionError(endpoint_url=SECRET_URL),
        boto.ReadTimeoutError(endpoint_url=SECRET_URL, error="timed out"),
        boto.HTTPClientError(error=f"lost {SECRET_URL}/?x=1"),
        OSError(f"cannot reach {SECRET_URL}"),
        ValueError(f"odd {SECRET_URL}"),
        client_error("AccessDeniedException"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_passwords_in_urls_are_in_no_text_and_no_traceback(original: Exception) -> None:
    class Secret:
        class meta:  # noqa: N801 - boto3's name
            endpoint_url = SECRET_URL

    with pytest.raises(AwsError) as caught, translate_errors("PutRecords", Secret()):
        raise original
    error = caught.value
    assert error.endpoint == endpoint_of(Secret()) == "http://kinesis.test:4567"
    texts = [
        str(error),
        repr(error),
        error.message,
        *traceback.format_exception(type(error), error, error.__traceback__),
        str(pickle.loads(pickle.dumps(original))),
    ]
    assert not [text for text in texts if "proxy-user" in text or "w@rd" in text]
    assert "kinesis.test:4567" in str(error)


def test_an_endpoint_that_botocore_does_not_accept_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # or it asks the metadata service for credentials
    unusable = "http://proxy-user:w@rd@not a host"
    with pytest.raises(AwsConfigError, match="http://not a host") as caught:
        make_client("kinesis", region_name="eu-west-1", endpoint_url=unusable)
    assert "w@rd" not in "".join(traceback.format_exception(caught.value))


def test_text_without_a_password_is_left_alone() -> None:
    text = "stream a@b at https://kinesis.eu-west-1.amazonaws.com"
    assert AwsError(text).message == text


# -- retries -----------------------------------------------------------------------------------------------


class Script:
    """A call that fails as told and then succeeds."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def retried(script: Script, **options: Any) -> tuple[str, list[float]]:
    waits: list[float] = []
    return call_with_retries(script, operation="DescribeTable", sleep=waits.append, **options), waits


@pytest.mark.parametrize(
    "failure",
    [
        client_error("ThrottlingException"),
        client_error("X", 500),
        boto.ReadTimeoutError(endpoint_url=URL),
        ProtocolError("p"),
    ],
)
def test_retryable_failures_are_repeated_with_bounded_waits(failure: Exception) -> None:
    script = Script(*[failure] * 9)
    result, waits = retried(script)
    assert result == "done"
    assert script.calls == 10
    assert len(waits) == 9
    assert all(0 <= wait <= 5.0 for wait in waits)


def test_the_last_failure_is_raised_after_the_last_attempt() -> None:
    script = Script(*[client_error("ThrottlingException")] * 5)
    with pytest.raises(ThrottledError) as caught:
        retried(script, attempts=3)
    assert script.calls == 3
    assert isinstance(caught.value.__cause__, boto.ClientError)


def test_time_bounds_the_attempts_too() -> None:
    script = Script(*[client_error("ThrottlingException")] * 5)
    with pytest.raises(ThrottledError):
        retried(script, timeout=0.0)
    assert script.calls == 1


@pytest.mark.parametrize(
    "failure",
    [
        client_error("AccessDeniedException"),
        client_error("ResourceNotFoundException"),
        boto.NoCredentialsError(),
    ],
)
def test_permanent_failures_are_not_repeated(failure: Exception) -> None:
    script = Script(failure, failure)
    with pytest.raises(PermanentAwsError):
        retried(script)
    assert script.calls == 1


def test_an_unreachable_endpoint_is_reported_after_three_attempts() -> None:
    script = Script(*[boto.EndpointConnectionError(endpoint_url=URL)] * 10)
    with pytest.raises(EndpointUnreachableError):
        retried(script)
    assert script.calls == 3
    assert retried(Script(*[boto.EndpointConnectionError(endpoint_url=URL)] * 2))[0] == "done"


def test_interrupts_end_the_retries() -> None:
    script = Script(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        retried(script)
    assert script.calls == 1


# -- clients -----------------------------------------------------------------------------------------------


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    """No AWS settings of the machine, and credentials that never leave it."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "BOTO_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.mark.usefixtures("bare_environment")
def test_everything_that_must_not_change_is_set() -> None:
    client = make_client(
        "kinesis", region_name="eu-west-1", max_pool_connections=7, connect_timeout=1.5, read_timeout=2.5
    )
    config = client.meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}
    assert (config.connect_timeout, config.read_timeout) == (1.5, 2.5)
    assert config.max_pool_connections == 7
    assert config.tcp_keepalive is True
    assert config.user_agent_extra == f"kinesis-sdk/{__version__}"
    assert client.meta.region_name == "eu-west-1"
    assert endpoint_of(client) == "https://kinesis.eu-west-1.amazonaws.com"


def test_the_environment_cannot_add_retries(bare_environment: pytest.MonkeyPatch) -> None:
    bare_environment.setenv("AWS_MAX_ATTEMPTS", "9")
    bare_environment.setenv("AWS_RETRY_MODE", "adaptive")
    client = make_client("kinesis", region_name="eu-west-1")
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 1}


@pytest.mark.usefixtures("bare_environment")
def test_the_users_config_wins_where_both_say_something() -> None:
    theirs = Config(
        read_timeout=33, retries={"mode": "legacy", "total_max_attempts": 4}, region_name="us-east-2"
    )
    client = make_client("kinesis", config=theirs)
    assert client.meta.config.read_timeout == 33
    assert client.meta.config.connect_timeout == 6.0
    assert client.meta.config.retries["total_max_attempts"] == 4
    assert client.meta.region_name == "us-east-2"


@pytest.mark.parametrize("service", ["kinesis", "dynamodb", "cloudwatch"])
def test_endpoint_variables_of_botocore_are_honoured(
    service: str, bare_environment: pytest.MonkeyPatch
) -> None:
    bare_environment.setenv("AWS_ENDPOINT_URL", "http://all.test:1")
    assert endpoint_of(make_client(service, region_name="eu-west-1")) == "http://all.test:1"
    bare_environment.setenv(f"AWS_ENDPOINT_URL_{service.upper()}", "http://one.test:2")
    assert endpoint_of(make_client(service, region_name="eu-west-1")) == "http://one.test:2"
    given = make_client(service, region_name="eu-west-1", endpoint_url="http://given.test:3")
    assert endpoint_of(given) == "http://given.test:3"


@pytest.mark.usefixtures("bare_environment")
def test_a_session_brings_its_region() -> None:
    client = make_client("kinesis", session=boto3.Session(region_name="ap-south-1"))
    assert client.meta.region_name == "ap-south-1"


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        ({}, {}, "region"),
        ({"region_name": "eu-west-1"}, {"AWS_PROFILE": "nobody"}, "nobody"),
        ({"region_name": "eu-west-1", "endpoint_url": "not a url"}, {}, "not a url"),
        ({"region_name": "in valid"}, {}, "in valid"),
    ],
    ids=["no region", "unknown profile", "bad endpoint", "bad region"],
)
def test_a_client_that_cannot_be_created(
    arguments: dict[str, Any], environment: dict[str, str], text: str, bare_environment: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        bare_environment.setenv(name, value)
    with pytest.raises(AwsConfigError, match=text) as caught:
        make_client("kinesis", **arguments)
    assert caught.value.__cause__ is not None
    assert not caught.value.retryable


def test_no_botocore_exception_leaves_translation_bare() -> None:
    """Whatever botocore declares, translating it gives an `AwsError` and no error of its own."""
    kinds: list[type[Exception]] = [
        kind
        for kind in vars(boto).values()
        if isinstance(kind, type) and issubclass(kind, boto.BotoCoreError)
    ]
    assert len(kinds) > 50
    for kind in kinds:
        original = kind.__new__(kind)  # their arguments all differ; the class is what counts
        error = translate_error(original, "PutRecords")
        assert isinstance(error, AwsError)


@pytest.mark.parametrize(
    ("url", "environment", "told"),
    [
        (
            "http://localhost:9/",
            {"AWS_ENDPOINT_URL": "http://localhost:9"},
            "(AWS_ENDPOINT_URL in the environment sets it)",
        ),
        (
            "http://localhost:9",
            {"AWS_ENDPOINT_URL_KINESIS": "http://localhost:9/"},
            "(AWS_ENDPOINT_URL_KINESIS in the environment sets it)",
        ),
        ("http://localhost:9/", {"AWS_ENDPOINT_URL": "http://localhost:8"}, ""),
        ("https://kinesis.eu-west-1.amazonaws.com/", {}, ""),
        (
            "https://123456789012.data-kinesis.eu-west-1.amazonaws.com/",
            {},
            ". boto3 uses this host because it knows the account; AWS_ACCOUNT_ID_ENDPOINT_MODE=disabled uses that of the region",
        ),
        ("https://123456789012.example.com/", {}, ""),
    ],
)
def test_an_endpoint_that_does_not_answer_is_told_with_what_chose_it(
    url: str, environment: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    error = translate_error(boto.EndpointConnectionError(endpoint_url=url), "PutRecords")
    assert str(error).endswith(
        f'Could not connect to the endpoint URL: "{url}"{" " if told.startswith("(") else ""}{told}'
    )


@pytest.mark.parametrize(
    ("mode", "host"),
    [("preferred", "123456789012.data-kinesis"), ("disabled", "kinesis")],
)
def test_the_hosts_of_the_account_are_those_of_the_page(mode: str, host: str) -> None:
    """docs/endpoints.md says which host a call goes to. An older boto3 knows the host of the region only."""
    called: list[str] = []

    def note(request: Any, **_: object) -> AWSResponse:
        called.append(request.url)
        return AWSResponse(request.url, 200, {}, Mock(stream=lambda *_: iter([b"{}"])))

    session = botocore.session.Session()
    session.set_credentials("AKID", "secret", account_id="123456789012")
    client = session.create_client(
        "kinesis", region_name="eu-west-1", config=Config(account_id_endpoint_mode=mode)
    )
    client.meta.events.register("before-send.kinesis", note)
    client.get_records(ShardIterator="x")
    if mode == "preferred" and "data-kinesis" not in called[0]:
        pytest.skip("this boto3 calls the host of the region")
    assert called == [f"https://{host}.eu-west-1.amazonaws.com/"]
