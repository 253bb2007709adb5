"""Outcomes of attempts: where is a record that was accepted, and did a failed attempt store nothing?"""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError

from kinesis_sdk.common.aws import service_error, translate_error
from kinesis_sdk.common.errors import KinesisSdkError, ProtocolError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.producer.stream.outcomes import Placement, check_placement, stored_nothing
from tests.producer.support import make_entry, shard_map

S0, S1, S2, S5 = (f"shardId-{n:012d}" for n in (0, 1, 2, 5))


THREE = shard_map((0, 0, 2), (1, 3, 10))
SPLIT = shard_map(
    (2, 0, 5),
    (3, 6, MAX_HASH_KEY),
    loaded_at=2.0,
    previous=shard_map((1, 0, MAX_HASH_KEY), loaded_at=1.0),
)
SEVEN = shard_map((0, 0, 6), (1, 7, MAX_HASH_KEY))


@pytest.mark.parametrize(
    ("predicted", "hash_keys", "landed", "ranges", "expected"),
    [
        # retrier_test.cc: hash keys 0, 1, 5, 10, predicted elsewhere, landed in 0-10
        pytest.param(S2, (0, 1, 5, 10), S1, shard_map((1, 0, 10)), Placement.STORED, id="right range"),
        # The KPL judges user record by user record; a KCL drops all of them for one that lies outside.
        *(
            pytest.param(S2, keys, S1, THREE, Placement.WRONG_SHARD, id=f"one outside {keys}")
            for keys in ((0, 1, 11), (3, 11), (3, 2), (3, 10, 4, 2))
        ),
        *(
            pytest.param(S1, keys, S1, THREE, Placement.STORED, id=f"ends belong to the range {keys}")
            for keys in ((3, 10), (3, 4, 5), (10, 10))
        ),
        # A stream that was deleted and made anew has the same shard ids with other ranges.
        pytest.param(S1, (3, 11), S1, THREE, Placement.WRONG_SHARD, id="the predicted shard is checked"),
        pytest.param(S1, (11,), S5, shard_map((1, 0, 10)), Placement.STORED, id="a single record"),
        pytest.param(None, (7, 7), S5, None, Placement.STORED, id="one hash key"),
        pytest.param(S1, (3, 4), S5, THREE, Placement.UNKNOWN_SHARD, id="a shard that the map lacks"),
        pytest.param(S1, (3, 4), S1, None, Placement.UNKNOWN_SHARD, id="no map"),
        pytest.param(S1, (3, 9), S1, SPLIT, Placement.STORED, id="closed parent of the map before"),
        pytest.param(S1, (3, 9), S2, SPLIT, Placement.WRONG_SHARD, id="one of two children"),
        pytest.param(S1, (3, 4), S2, SPLIT, Placement.STORED, id="the right child"),
    ],
)
def test_where_an_aggregate_landed(
    predicted: str | None, hash_keys: tuple[int, ...], landed: str, ranges: Any, expected: Placement
) -> None:
    assert check_placement(make_entry(shard_id=predicted, hash_keys=hash_keys), landed, ranges) is expected


@pytest.mark.parametrize(
    ("hash_keys", "landed", "ranges", "expected"),
    [
        ((11,), S5, None, Placement.STORED),
        ((7, 7), S1, SEVEN, Placement.STORED),
        ((7, 7), S0, SEVEN, Placement.WRONG_SHARD),
        ((7, 7), S0, None, Placement.UNKNOWN_SHARD),
    ],
)
def test_where_a_service_that_places_by_itself_put_it(
    hash_keys: tuple[int, ...], landed: str, ranges: Any, expected: Placement
) -> None:
    entry = make_entry(shard_id=None, hash_keys=hash_keys)
    assert check_placement(entry, landed, ranges, service_places=True) is expected


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
