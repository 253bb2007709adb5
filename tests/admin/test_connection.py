from __future__ import annotations

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.spelling import options_of
from kinesis_sdk.common.errors import AwsConfigError


def test_clients_are_made_once_with_region_and_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    connection = Connection(region="eu-west-1", endpoint_url="http://localhost:4566")
    assert connection.kinesis is connection.client("kinesis")
    assert connection.kinesis.meta.region_name == "eu-west-1"
    assert connection.dynamodb.meta.endpoint_url == "http://localhost:4566"
    assert options_of(connection) == ["--region", "eu-west-1", "--endpoint-url", "http://localhost:4566"]


def test_given_clients_are_used() -> None:
    mine = object()
    assert Connection(clients={"kinesis": mine}).kinesis is mine


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(AwsConfigError, match="nobody-has-this-profile"):
        _ = Connection(profile="nobody-has-this-profile").kinesis


def test_an_unknown_profile_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this-profile")
    with pytest.raises(AwsConfigError, match="nobody-has-this-profile"):
        _ = Connection().kinesis
