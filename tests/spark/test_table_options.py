"""Options of a table, from its creation to its scans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.table_options import (
    METADATA_KEY,
    check_write_options,
    creation_options,
    read_options,
)

# What Spark 4.0.5, 4.1.4 and 4.3.0 pass for CREATE TABLE … OPTIONS (streamName 'orders', region 'us-east-1') LOCATION '/x'.
CREATION = {
    "option.streamname": "orders",
    "provider": "kinesis_sdk",
    "region": "us-east-1",
    "owner": "root",
    "streamname": "orders",
    "option.region": "us-east-1",
    "location": "file:/x",
    "path": "file:/x",
}
STORED = {"streamname": "orders", "region": "us-east-1"}


def schema(*metadata: dict[str, Any] | None) -> Any:
    return SimpleNamespace(fields=[SimpleNamespace(metadata=item) for item in metadata])


TABLE = schema({METADATA_KEY: STORED}, {}, None)


def test_the_options_of_a_table_are_those_with_the_prefix() -> None:
    assert creation_options(CREATION) == STORED
    assert creation_options({"owner": "root", "provider": "kinesis_sdk"}) == {}
    # A property of a table is no option.
    assert creation_options({"provider": "kinesis_sdk", "streamname": "orders"}) == {}


def test_a_load_creates_no_table() -> None:
    assert creation_options({"streamName": "orders", "region": "us-east-1"}) is None
    assert creation_options({}) is None


@pytest.mark.parametrize("name", ["accessKeyId", "secretAccessKey", "sessionToken"])
def test_a_table_takes_no_credentials(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name}='…' .* roleArn, profile") as caught:
        creation_options({**CREATION, f"option.{name.lower()}": "hidden-value"})
    assert "hidden-value" not in str(caught.value)


def test_a_scan_has_the_options_of_its_table_and_its_own() -> None:
    assert read_options({}, TABLE) == STORED
    own = {"startingPosition": "LATEST", "region": "eu-west-1"}
    assert read_options(own, TABLE) == {
        "streamname": "orders",
        "region": "eu-west-1",
        "startingposition": "LATEST",
    }


@pytest.mark.parametrize("name", ["streamName", "STREAMARN"])
def test_options_with_a_stream_stand_for_themselves(name: str) -> None:
    given = {name: "other"}
    assert read_options(given, TABLE) == given


def test_without_any_options_the_error_says_what_to_write() -> None:
    for columns in (schema(), schema({}, None)):
        with pytest.raises(ConfigError, match="streamName=None"):
            read_options({}, columns)
    with pytest.raises(ConfigError, match="streamName=None"):
        check_write_options({})
    assert check_write_options({"streamName": "orders"}) == {"streamName": "orders"}
