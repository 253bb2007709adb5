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


def test_wrong_shard_but_correct_hash_range() -> None:
    # retrier_test.cc: hash keys 0, 1, 5, 10, predicted elsewhere, landed in 0-10
    entry = make_entry(shard_id=S2, hash_keys=(0, 1, 5, 10))
    assert check_placement(entry, S1, shard_map((1, 0, 10))) is Placement.STORED


@pytest.mark.parametrize("hash_keys", [(0, 1, 11), (3, 11), (3, 2), (3, 10, 4, 2)])
def test_wrong_shard_and_wrong_hash_range(hash_keys: tuple[int, ...]) -> None:
    # The KPL judges user record by user record; a KCL drops all of them for one that lies outside.
    entry = make_entry(shard_id=S2, hash_keys=hash_keys)
    assert check_placement(entry, S1, shard_map((0, 0, 2), (1, 3, 10))) is Placement.WRONG_SHARD


@pytest.mark.parametrize("hash_keys", [(3, 10), (3, 4, 5), (10, 10)])
def test_both_ends_of_a_range_belong_to_it(hash_keys: tuple[int, ...]) -> None:
    entry = make_entry(shard_id=S1, hash_keys=hash_keys)
    assert check_placement(entry, S1, shard_map((0, 0, 2), (1, 3, 10))) is Placement.STORED


def test_even_the_predicted_shard_is_checked() -> None:
    # A stream that was deleted and made anew has the same shard ids with other ranges.
    entry = make_entry(shard_id=S1, hash_keys=(3, 11))
    assert check_placement(entry, S1, shard_map((0, 0, 2), (1, 3, 10))) is Placement.WRONG_SHARD


def test_a_single_record_is_stored_wherever_it_landed() -> None:
    assert (
        check_placement(make_entry(shard_id=S1, hash_keys=(11,)), S5, shard_map((1, 0, 10)))
        is Placement.STORED
    )
    assert (
        check_placement(make_entry(shard_id=None, hash_keys=(11,)), S5, None, service_places=True)
        is Placement.STORED
    )


def test_a_group_of_one_hash_key_is_right_wherever_it_landed() -> None:
    assert check_placement(make_entry(shard_id=None, hash_keys=(7, 7)), S5, None) is Placement.STORED


def test_unless_the_service_places_by_itself() -> None:
    entry = make_entry(shard_id=None, hash_keys=(7, 7))
    ranges = shard_map((0, 0, 6), (1, 7, MAX_HASH_KEY))
    assert check_placement(entry, S1, ranges, service_places=True) is Placement.STORED
    assert check_placement(entry, S0, ranges, service_places=True) is Placement.WRONG_SHARD
    assert check_placement(entry, S0, None, service_places=True) is Placement.UNKNOWN_SHARD


def test_an_unknown_shard_needs_a_new_map() -> None:
    entry = make_entry(shard_id=S1, hash_keys=(3, 4))
    assert check_placement(entry, S5, shard_map((0, 0, 2), (1, 3, 10))) is Placement.UNKNOWN_SHARD
    assert check_placement(entry, S1, None) is Placement.UNKNOWN_SHARD


def test_a_closed_parent_of_the_map_before_is_known() -> None:
    old = shard_map((1, 0, MAX_HASH_KEY), loaded_at=1.0)
    new = shard_map((2, 0, 5), (3, 6, MAX_HASH_KEY), loaded_at=2.0, previous=old)
    assert check_placement(make_entry(shard_id=S1, hash_keys=(3, 9)), S1, new) is Placement.STORED
    assert check_placement(make_entry(shard_id=S1, hash_keys=(3, 9)), S2, new) is Placement.WRONG_SHARD
    assert check_placement(make_entry(shard_id=S1, hash_keys=(3, 4)), S2, new) is Placement.STORED


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
