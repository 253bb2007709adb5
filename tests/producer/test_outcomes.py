"""Which failures say for certain that nothing was stored."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError

from kinesis_sdk.common.aws import service_error, translate_error
from kinesis_sdk.common.errors import KinesisSdkError, ProtocolError
from kinesis_sdk.producer.outcomes import stored_nothing


def answered(status: int, code: str) -> KinesisSdkError:
    response: Any = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate_error(ClientError(response, "PutRecords"), "PutRecords")


def raised(error: Exception) -> KinesisSdkError:
    return translate_error(error, "PutRecords")


URL = "https://kinesis.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "error",
    [
        answered(400, "ProvisionedThroughputExceededException"),
        answered(503, "SlowDown"),
        answered(400, "ValidationException"),
        answered(400, "ResourceNotFoundException"),
        answered(400, "AccessDeniedException"),
        answered(403, "InvalidSignatureException"),
        answered(400, "ExpiredTokenException"),
        answered(400, "KMSDisabledException"),
        answered(429, "TooManyRequestsException"),
        raised(boto.EndpointConnectionError(endpoint_url=URL)),
        raised(boto.ConnectTimeoutError(endpoint_url=URL)),
        raised(boto.NoCredentialsError()),
        raised(boto.CredentialRetrievalError(provider="p", error_msg="m")),
        service_error("ProvisionedThroughputExceededException", "m"),
        service_error("KMSAccessDeniedException", "m"),
        service_error("UnrecognizedClientException", "m"),
    ],
    ids=str,
)
def test_certain(error: KinesisSdkError) -> None:
    assert stored_nothing(error)


@pytest.mark.parametrize(
    "error",
    [
        raised(boto.ReadTimeoutError(endpoint_url=URL)),
        raised(boto.ConnectionClosedError(endpoint_url=URL)),
        raised(boto.ProxyConnectionError(proxy_url="http://p")),
        raised(boto.SSLError(endpoint_url=URL, error="e")),
        raised(ConnectionResetError("reset")),
        raised(MemoryError()),
        answered(500, "InternalFailure"),
        answered(503, "ServiceUnavailable"),
        answered(502, "502"),
        answered(408, "RequestTimeout"),
        answered(400, "RequestTimeoutException"),
        answered(403, "403"),
        answered(400, "400"),
        answered(404, ""),
        answered(200, "InternalFailure"),
        service_error("InternalFailure", "m"),
        service_error("SomethingNew", "m"),
        ProtocolError("an answer that does not parse"),
    ],
    ids=str,
)
def test_unknown(error: KinesisSdkError) -> None:
    assert not stored_nothing(error)
