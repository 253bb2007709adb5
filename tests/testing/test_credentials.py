from __future__ import annotations

import pytest

from kinesis_sdk.testing import AwsError, VirtualClock
from kinesis_sdk.testing.credentials import Credentials


def refusal(credentials: Credentials, key: str | None, token: str | None = None) -> str | None:
    try:
        credentials.check(key, token)
    except AwsError as error:
        return error.code
    return None


def test_permanent_keys() -> None:
    anybody = Credentials(VirtualClock())
    assert refusal(anybody, "AKIDX") is None
    assert refusal(anybody, None) is None
    some = Credentials(VirtualClock(), {"AKIDGOOD"})
    assert refusal(some, "AKIDGOOD") is None
    assert refusal(some, "AKIDBAD") == refusal(some, None) == "UnrecognizedClientException"


@pytest.mark.parametrize("access_keys", [None, (), ("AKIDGOOD",)])
def test_temporary_credentials_expire(access_keys: tuple[str, ...] | None) -> None:
    clock = VirtualClock()
    credentials = Credentials(clock, access_keys)
    first, second = credentials.issue(10), credentials.issue(20)
    assert first["AccessKeyId"] != second["AccessKeyId"]
    clock.advance(9.9)
    assert refusal(credentials, first["AccessKeyId"], first["SessionToken"]) is None
    clock.advance(0.2)
    assert refusal(credentials, first["AccessKeyId"], first["SessionToken"]) == "ExpiredTokenException"
    assert refusal(credentials, second["AccessKeyId"], second["SessionToken"]) is None


def test_temporary_credentials_need_their_own_token() -> None:
    credentials = Credentials(VirtualClock())
    issued, other = credentials.issue(10), credentials.issue(10)
    for token in (None, "", other["SessionToken"]):
        assert refusal(credentials, issued["AccessKeyId"], token) == "UnrecognizedClientException"
    assert refusal(credentials, "ASIAUNKNOWN", issued["SessionToken"]) == "UnrecognizedClientException"


def test_credentials_are_valid_for_some_time() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Credentials(VirtualClock()).issue(0)
