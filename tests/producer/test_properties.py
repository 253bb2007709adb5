"""A KPL's properties file: its syntax, its keys, its ranges."""

from __future__ import annotations

import dataclasses
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.java_properties import parse_pairs
from kinesis_sdk.producer import ProducerConfig
from kinesis_sdk.producer.properties import (
    KEYS,
    ClientSettings,
    MetricsSettings,
    load_properties,
    parse_properties,
    reference,
)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("# comment\n  ! comment = no\n\n \t\n", []),
        ("a=1", [("a", "1")]),
        (
            "a = 1\nb : 2\nc 3\nd\t=\t4\r\ne:5\rf=6",
            [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("f", "6")],
        ),
        ("a==1", [("a", "=1")]),
        ("a = = 1", [("a", "= 1")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=1", [("", "1")]),
        ("a=1  ", [("a", "1  ")]),  # Java keeps blanks at the end
        ("   a=1", [("a", "1")]),
        ("a\\ b\\=c\\:d=1", [("a b=c:d", "1")]),
        ("a=x\\ty\\nz\\\\\\q", [("a", "x\ty\nz\\q")]),
        ("a=\\u00e9\\u20AC", [("a", "é€")]),
        ("\\u0061=1", [("a", "1")]),
        ("a=1,\\\n    2,\\\n    3\nb=4", [("a", "1,2,3"), ("b", "4")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n# no comment here", [("a", "1# no comment here")]),
        ("# comment \\\na=1", [("a", "1")]),
        ("a=1\\", [("a", "1")]),
        ("a=1\\\n", [("a", "1")]),
        ("a\fb", [("a", "b")]),
    ],
)
def test_java_syntax(text: str, pairs: list[tuple[str, str]]) -> None:
    assert list(parse_pairs(text)) == pairs


@pytest.mark.parametrize("escape", ["\\u12", "\\uXYZ1", "\\u"])
def test_a_malformed_escape_is_an_error_as_in_java(escape: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        list(parse_pairs(f"a={escape}"))


def escaped(text: str, *, key: bool) -> str:
    out = []
    for index, char in enumerate(text):
        if char == "\\" or (key and char in "=: #!\t\f") or (not key and index == 0 and char in " \t\f"):
            out.append("\\" + {"\t": "t", "\f": "f"}.get(char, char))
        elif char in "\n\r" or ord(char) > 126:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return "".join(out)


TEXTS = st.text(string.printable.replace("\v", "") + "é€", max_size=20)


def test_the_page_has_the_table_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kpl-properties.md").read_text(encoding="utf-8")
    assert page.split("<!-- keys -->\n")[1].split("\n<!-- end of keys -->")[0] == reference(), (
        "run `make docs`"
    )


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_what_java_stores_comes_back(pairs: list[tuple[str, str]]) -> None:
    pairs = [pair for pair in pairs if pair[0]]
    text = "\n".join(f"{escaped(k, key=True)}={escaped(v, key=False)}" for k, v in pairs)
    assert list(parse_pairs(text)) == pairs


def test_every_key_of_the_kpl_is_mapped_or_explained() -> None:
    meaningless = [key for key, target in KEYS.items() if target.read is None]
    found = parse_properties("\n".join(f"{key} = 1" for key in meaningless))
    assert [key for key, _ in found.ignored] == meaningless
    assert all(reason for _, reason in found.ignored)
    assert found.unknown == []
    assert found.config == {}


def test_an_empty_file_says_nothing() -> None:
    found = parse_properties("")
    assert found.producer_config() == ProducerConfig()
    assert found.client == ClientSettings()
    assert found.metrics == MetricsSettings()
    assert (found.ignored, found.adjusted, found.unknown) == ([], [], [])


def test_the_kpls_defaults_are_ours() -> None:
    found = parse_properties(
        """
        AggregationEnabled = true
        AggregationMaxCount = 4294967295
        AggregationMaxSize = 51200
        CollectionMaxCount = 500
        CollectionMaxSize = 5242880
        MaxUserRecordSize = 1048576
        RecordMaxBufferedTime = 100
        RecordTtl = 30000
        RateLimit = 150
        FailIfThrottled = false
        RequestTimeout = 6000
        ConnectTimeout = 6000
        MaxConnections = 24
        MetricsLevel = detailed
        MetricsGranularity = shard
        MetricsNamespace = KinesisProducerLibrary
        MetricsUploadDelay = 60000
        RecordDistributionStrategyDefault = UNSET
        DescribeStreamSummaryIntervalMs = 300000
        KinesisPort = 443
        CloudwatchPort = 443
        VerifyCertificate = true
        """,
        strict=True,
    )
    assert found.producer_config() == ProducerConfig()
    assert len(found.config) == 15
    assert found.client == ClientSettings()
    assert found.metrics == MetricsSettings()


def test_values_of_every_field_arrive_in_our_units() -> None:
    found = parse_properties(
        "AggregationEnabled=FALSE\nAggregationMaxCount=7\nAggregationMaxSize=100\nCollectionMaxCount=10\n"
        "CollectionMaxSize=60000\nMaxUserRecordSize=2097152\nRecordMaxBufferedTime=250\nRecordTtl=1500\n"
        "RateLimit=80\nFailIfThrottled=true\nRequestTimeout=2500\nConnectTimeout=100\nMaxConnections=+3\n"
        "RecordDistributionStrategyDefault=AUTO\nDescribeStreamSummaryIntervalMs=60000"
    )
    config = found.producer_config()
    assert config == ProducerConfig(
        aggregation_enabled=False,
        aggregation_max_count=7,
        aggregation_max_size=100,
        collection_max_count=10,
        collection_max_size=60_000,
        max_user_record_size=2_097_152,
        record_max_buffered_time=0.25,
        record_ttl=1.5,
        rate_limit=80,
        fail_if_throttled=True,
        request_timeout=2.5,
        connect_timeout=0.1,
        max_connections=3,
        record_distribution_strategy_default="AUTO",
        describe_stream_summary_interval=60.0,
    )
    names = {field.name for field in dataclasses.fields(ProducerConfig)}
    assert set(found.config) <= names


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("AggregationMaxCount", 1, 2**63 - 1),
        ("AggregationMaxSize", 64, 10_485_760),
        ("CollectionMaxCount", 1, 500),
        ("CollectionMaxSize", 52_224, 2**63 - 1),
        ("MaxUserRecordSize", 64, 10_485_760),
        ("RecordMaxBufferedTime", 0, 2**63 - 1),
        ("RecordTtl", 100, 2**63 - 1),
        ("RateLimit", 1, 2**63 - 1),
        ("RequestTimeout", 100, 600_000),
        ("ConnectTimeout", 100, 300_000),
        ("MaxConnections", 1, 256),
        ("KinesisPort", 1, 65_535),
        ("CloudwatchPort", 1, 65_535),
        ("ProxyPort", 1, 65_535),
        ("MetricsUploadDelay", 1, 60_000),
        ("DescribeStreamSummaryIntervalMs", 1, 2**63 - 1),
    ],
)
def test_ranges_are_the_kpls_and_every_value_inside_makes_a_config(key: str, low: int, high: int) -> None:
    for value in (low, high):
        parse_properties(f"{key}={value}").producer_config()
    for value in (low - 1, high + 1, "ten", "1.5", "", "1e3", "9" * 5000):
        with pytest.raises(ConfigError) as caught:
            parse_properties(f"{key}={value}")
        assert caught.value.field == key
        assert f"{low:,}" in str(caught.value)
        assert f"{high:,}" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("AggregationEnabled=yes", "true or false"),
        ("FailIfThrottled=1", "true or false"),
        ("VerifyCertificate=", "true or false"),
        ("MetricsLevel=all", "none, summary, detailed"),
        ("RecordDistributionStrategyDefault=auto", "UNSET, AUTO, USER_PARTITION_KEY"),
        ("MetricsGranularity=Shard", "global, stream, shard"),
        ("MetricsNamespace=AWS/Kinesis", "AWS/"),
        ("MetricsNamespace=", "1 to 255"),
        ("Region=Ireland", "eu-west-1"),
        ("KinesisEndpoint=https://localhost", "host name"),
        ("CloudwatchEndpoint=a/b", "host name"),
    ],
)
def test_other_values_are_checked_too(line: str, accepted: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        parse_properties(line)
    assert caught.value.field == key
    assert caught.value.value == value
    assert accepted in caught.value.accepted


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("RecordTtl=2147483647", "record_ttl", 604_800.0),  # "a large value like INT_MAX"
        ("RecordTtl=9223372036854775807", "record_ttl", 604_800.0),
        ("RecordMaxBufferedTime=9223372036854775807", "record_max_buffered_time", 3_600.0),
        ("RateLimit=20000", "rate_limit", 10_000),
        ("CollectionMaxSize=20971520", "collection_max_size", 10_485_760),
    ],
)
def test_what_the_kpl_takes_and_we_do_not_becomes_our_most_and_is_reported(
    line: str, field: str, value: float
) -> None:
    found = parse_properties(line)
    assert found.config == {field: value}
    assert [key for key, _ in found.adjusted] == [line.split("=", maxsplit=1)[0]]
    with pytest.raises(ConfigError, match=line.split("=", maxsplit=1)[0]):
        parse_properties(line, strict=True)


def test_our_most_is_not_adjusted() -> None:
    found = parse_properties(
        "RecordTtl=604800000\nRateLimit=10000\nRecordMaxBufferedTime=3600000", strict=True
    )
    assert found.adjusted == []
    assert len(parse_properties("MetricsNamespace=" + "n" * 255).metrics.namespace) == 255
    with pytest.raises(ConfigError, match="MetricsNamespace"):
        parse_properties("MetricsNamespace=" + "n" * 256)


def test_region_endpoint_and_certificates() -> None:
    found = parse_properties(
        "Region = eu-west-1\nKinesisEndpoint = localhost\nKinesisPort = 4567\nCaCertFile = /etc/ca.pem\n"
        "CloudwatchEndpoint = cw.example.com\nMetricsLevel = summary\nMetricsUploadDelay = 1500"
    )
    assert found.client == ClientSettings(
        region_name="eu-west-1", endpoint_url="https://localhost:4567", verify="/etc/ca.pem"
    )
    assert found.metrics == MetricsSettings(
        level="summary", upload_delay=1.5, endpoint_url="https://cw.example.com"
    )
    assert parse_properties("Region=us-gov-west-1").client.region_name == "us-gov-west-1"
    assert parse_properties("Region=\nKinesisEndpoint=").client == ClientSettings()


def test_not_verifying_wins_over_a_bundle() -> None:
    assert parse_properties("VerifyCertificate=false\nCaCertFile=/etc/ca.pem").client.verify is False
    assert parse_properties("VerifyCertificate=true").client.verify is None


def test_a_port_without_a_host_is_reported() -> None:
    found = parse_properties("KinesisPort=4567\nCloudwatchPort=4568")
    assert [key for key, _ in found.ignored] == ["KinesisPort", "CloudwatchPort"]
    assert found.client.endpoint_url is None


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("ProxyHost=proxy", "http://proxy:443"),
        ("ProxyHost=https://proxy/\nProxyPort=3128", "https://proxy:3128"),
        ("ProxyHost=proxy\nProxyUserName=me@x\nProxyPassword=p:w/d", "http://me%40x:p%3Aw%2Fd@proxy:443"),
        ("ProxyHost=proxy\nProxyUserName=me", "http://me@proxy:443"),
        ("ProxyHost=proxy\nProxyPassword=secret", "http://proxy:443"),
    ],
)
def test_proxies(text: str, url: str) -> None:
    assert parse_properties(text).client.proxies == {"https": url}
    assert parse_properties("ProxyPort=3128\nProxyUserName=me").client.proxies == {}


def test_a_password_is_not_shown() -> None:
    found = parse_properties("ProxyHost=proxy\nProxyUserName=me\nProxyPassword=secret")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("key", "closest"),
    [
        ("recordTtl", "RecordTtl"),
        ("record_max_buffered_time", "RecordMaxBufferedTime"),
        ("setRateLimit", "RateLimit"),
        ("AggregationMaxSise", "AggregationMaxSize"),
        ("CustomEndpoint", "KinesisEndpoint"),
        ("Port", "KinesisPort"),
        ("Zebra", None),
    ],
)
def test_unknown_keys_are_reported_with_the_closest_one(key: str, closest: str | None) -> None:
    found = parse_properties(f"{key}=1")
    assert found.unknown == [(key, closest)]
    assert found.config == {}
    with pytest.raises(ConfigError, match=key) as caught:
        parse_properties(f"{key}=1", strict=True)
    assert ("did you mean" in str(caught.value)) == (closest is not None)


def test_strict_takes_no_key_without_effect() -> None:
    with pytest.raises(ConfigError, match="MinConnections"):
        parse_properties("MinConnections=1", strict=True)


def test_credentials_in_a_file_are_not_used_and_not_shown() -> None:
    found = parse_properties("AwsAccessKeyId=AKIAEXAMPLE\nAwsSecretKey=shh")
    assert [key for key, _ in found.ignored] == ["AwsAccessKeyId", "AwsSecretKey"]
    assert "shh" not in repr(found)
    assert "AKIA" not in repr(found)


def test_the_last_of_equal_keys_counts() -> None:
    assert parse_properties("RateLimit=0\nRateLimit=100").config == {"rate_limit": 100}


def test_a_file_is_read_in_javas_encoding(tmp_path: Path) -> None:
    path = tmp_path / "kpl.properties"
    path.write_bytes("# café\nCaCertFile=/caf\\u00e9-é.pem\nRecordTtl=60000\n".encode("iso-8859-1"))
    found = load_properties(path, strict=True)
    assert found.client.verify == "/café-é.pem"
    assert found.config == {"record_ttl": 60.0}
    with pytest.raises(FileNotFoundError):
        load_properties(tmp_path / "missing")


def test_an_interval_below_our_minimum_is_raised_and_named() -> None:
    found = parse_properties("DescribeStreamSummaryIntervalMs=20")
    assert found.config == {"describe_stream_summary_interval": 0.5}
    assert [key for key, _ in found.adjusted] == ["DescribeStreamSummaryIntervalMs"]
