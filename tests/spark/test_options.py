from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.options import _SINK, _SOURCE, SinkOptions, SourceOptions
from kinesis_sdk.spark.parse.form import ValueFormat
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.testing import VirtualClock
from tests import fuzz
from tests.readme import DOCS

NAME = {"streamName": "orders"}


def test_defaults() -> None:
    options = SourceOptions.parse(NAME)
    assert options.streams == (StreamId("orders"),)
    assert options.starting_position is None
    assert options.max_batch_span is None
    assert options.fail_on_data_loss
    assert options.deaggregate
    assert options.misplaced_aggregates == "deliver"
    assert options.records_per_fetch == 10_000
    assert (options.idle_probe_interval, options.max_tasks, options.shards_per_task) == (5.0, None, None)


@pytest.mark.parametrize(("part", "table"), [("## Reader", _SOURCE), ("## Writer", _SINK)])
def test_every_option_is_on_the_page(part: str, table: dict[str, Any]) -> None:
    """Credentials are listed once, for the reader."""
    page = (DOCS / "spark-options.md").read_text(encoding="utf-8")
    section = page.split(part)[1].split("## Large records")[0]
    wanted = set(table) if part == "## Reader" else set(table) - set(_SOURCE)
    assert {name for name in wanted if not re.search(rf"`{name}`", section)} == set()


def test_every_reader_option_in_any_case() -> None:
    options = SourceOptions.parse(
        {
            "STREAMNAME": "orders",
            "Region": "eu-west-1",
            "endpointurl": "http://127.0.0.1:1",
            "profile": "p",
            "roleArn": "arn:aws:iam::1:role/x",
            "roleSessionName": "n",
            "externalId": "e",
            "startingPosition": "trim_horizon",
            "endingPosition": "AT_TIMESTAMP 5",
            "maxBatchSpan": "90s",
            "maxRecordsPerShard": "7",
            "tipLag": "1s",
            "minProbeInterval": "500ms",
            "shardRefreshInterval": "1m",
            "probeThreads": "3",
            "shardsPerTask": "2",
            "shardIds": "shardId-000000000001, shardId-000000000000",
            "MAXTASKS": "10000",
            "idleprobeinterval": "0",
            "recordsPerFetch": "100",
            "fetchInterval": "0",
            "retryTimeout": "1h",
            "deaggregate": "False",
            "failOnDataLoss": "FALSE",
            "maxRepetitionBytes": "1048576",
            "maxLookUpSpan": "1m",
            "recognizeRepetitions": "false",
            "retrievalMode": "polling",
            "valueFormat": "JSON",
            "MODE": "dropMalformed",
            "columnNameOfCorruptRecord": "bad",
            "timezone": "Europe/Berlin",
        }
    )
    assert options.value_format == ValueFormat(
        name="json", mode="DROPMALFORMED", corrupt_name="bad", zone="Europe/Berlin"
    )
    assert (options.max_repetition_bytes, options.max_look_up_span) == (1 << 20, 60.0)
    assert not options.recognize_repetitions
    assert options.connection == ConnectionSettings(
        region_name="eu-west-1",
        endpoint_url="http://127.0.0.1:1",
        profile_name="p",
        role_arn="arn:aws:iam::1:role/x",
        role_session_name="n",
        external_id="e",
    )
    assert (options.max_batch_span, options.tip_lag, options.min_probe_interval) == (90.0, 1.0, 0.5)
    assert (options.shard_refresh_interval, options.fetch_interval, options.retry_timeout) == (
        60.0,
        0.0,
        3600.0,
    )
    assert (options.max_records_per_shard, options.probe_threads, options.shards_per_task) == (7, 3, 2)
    assert options.shard_ids == {"shardId-000000000000", "shardId-000000000001"}
    assert (options.max_tasks, options.idle_probe_interval) == (10_000, 0.0)
    assert not options.deaggregate
    assert not options.fail_on_data_loss
    assert options.ending_position == AtTimestamp(5)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("streamNam", "streamName"),
        ("maxrecordpershard", "maxRecordsPerShard"),
        ("startingposition ", "startingPosition"),
        ("failondataloos", "failOnDataLoss"),
        ("endpoint", "endpointUrl"),
    ],
)
def test_an_unknown_option_names_the_closest_one_and_never_its_value(name: str, closest: str) -> None:
    with pytest.raises(ConfigError, match=rf"option {name}.* {closest} ") as caught:
        SourceOptions.parse({**NAME, name: "hidden-value"})
    assert "hidden-value" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxRepetitionBytes", "1048575"),
        ("maxLookUpSpan", "16m"),
        ("maxLookUpSpan", "0"),
        ("tipLag", "5"),
        ("tipLag", "abc"),
        ("tipLag", "30 parsecs"),
        ("tipLag", "61s"),
        ("retryTimeout", "2d"),
        ("maxTasks", "0"),
        ("maxTasks", "10001"),
        ("idleProbeInterval", "301s"),
        ("idleProbeInterval", "5"),
        ("minProbeInterval", "10ms"),
        ("shardIds", "shardId-000000000000,,"),
        ("maxRecordsPerShard", "10001"),
        ("maxRecordsPerShard", "0"),
        ("maxRecordsPerShard", "-5"),
        ("maxRecordsPerShard", "1.5"),
        ("deaggregate", "yes"),
        ("retrievalMode", "fanout"),
        ("endingPosition", "TRIM_HORIZON"),
        ("endingPosition", '{"shardId-000000000000": "LATEST"}'),
        ("endingPosition", '{"orders": "LATEST"}'),
        ("startingPosition", "EARLIEST"),
        ("misplacedAggregates", "drop"),
        ("streamName", "not a name"),
        ("streamArn", "orders"),
        ("streamArn", "arn:aws:kinesis"),
        ("accessKeyId", "AKID"),
        ("roleSessionName", "without a role"),
        ("firstAttempts", "always"),
        ("valueFormat", "xml"),
        ("mode", "FAILFAST"),
        ("timeZone", "Mars/Olympus"),
        ("timeZone", "../UTC"),
        ("dedupNamespace", " "),
    ],
)
def test_bad_values_name_their_option(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        SourceOptions.parse({**NAME, name: value})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sep": ";"}, "sep=';'.*nothing without a valueFormat"),
        ({"sep": ";", "valueFormat": "json"}, "sep=';'.*nothing with valueFormat=json"),
        ({"valueFormat": "avro"}, "avroSchema=None.*or schemaRegistry=glue"),
        ({"valueFormat": "avro", "schemaRegistry": "confluent"}, "schemaRegistry='confluent'.*glue"),
        ({"valueFormat": "json", "schemaRegistryEndpointUrl": "http://x"}, "nothing without schemaRegistry"),
        (
            {"valueFormat": "avro", "avroSchema": '"int"', "timeZone": "UTC"},
            "timeZone='UTC'.*nothing with valueFormat=avro",
        ),
        (
            {"valueFormat": "protobuf", "messageName": "M"},
            "protobufDescriptor=None.*path of a descriptor set",
        ),
        (
            {"valueFormat": "protobuf", "protobufDescriptor": "no.desc"},
            "protobufDescriptor='no.desc'.*No such file",
        ),
        ({"valueFormat": "json", "messageName": "M"}, "messageName='M'.*nothing with valueFormat=json"),
        ({"sep": "::", "valueFormat": "csv"}, "sep='::'.*one ASCII character"),
        ({"sep": '"', "valueFormat": "csv"}, "sep='\"'.*another character than quote"),
        ({"quote": "“", "valueFormat": "csv"}, "quote='“'.*one ASCII character"),
        ({"header": "true", "valueFormat": "csv"}, "header='true'.*one line without a header"),
        ({"timestampFormat": "yyyy", "valueFormat": "csv"}, "timestampFormat='yyyy'.*name the column STRING"),
        ({"delimiter": ";", "valueFormat": "csv"}, "delimiter=';'.*called sep"),
    ],
)
def test_options_of_a_format_need_it(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SourceOptions.parse({**NAME, **given})
    found = SourceOptions.parse({**NAME, "valueFormat": "csv", "sep": "\\t", "escape": "", "nullValue": " "})
    assert found.value_format == ValueFormat(name="csv", settings={"sep": "\t", "escape": "", "null": " "})


def test_a_registry_has_the_region_and_credentials_of_the_stream() -> None:
    given = {
        "valueFormat": "avro",
        "schemaRegistry": "glue",
        "schemaRegistryEndpointUrl": "http://glue",
        "endpointUrl": "http://kinesis",
        "profile": "p",
    }
    found = SourceOptions.parse({**NAME, **given})
    assert found.value_format == ValueFormat(
        name="avro", registry=replace(found.connection, endpoint_url="http://glue")
    )
    assert (found.connection.endpoint_url, found.connection.profile_name) == ("http://kinesis", "p")


def test_each_direction_checks_and_ignores_the_options_of_the_other() -> None:
    """A temporary view passes the same options to its reader and to its writer."""
    reader, writer = {"startingPosition": "TRIM_HORIZON"}, {"PARTITIONKEY": "random", "aggregation": "false"}
    both = {**NAME, **reader, **writer}
    assert SourceOptions.parse(both) == SourceOptions.parse({**NAME, **reader})
    assert SinkOptions.parse(both) == SinkOptions.parse({**NAME, **writer})
    with pytest.raises(ConfigError, match="partitionKey='k'"):
        SourceOptions.parse({**NAME, "partitionKey": "k"})
    with pytest.raises(ConfigError, match="startingPosition='k'"):
        SinkOptions.parse({**NAME, "startingPosition": "k"})


def test_discarding_misplaced_aggregates_needs_deaggregation() -> None:
    chosen = SourceOptions.parse({**NAME, "misplacedAggregates": "Discard"})
    assert chosen.misplaced_aggregates == "discard"
    with pytest.raises(ConfigError, match="misplacedAggregates"):
        SourceOptions.parse({**NAME, "misplacedAggregates": "discard", "deaggregate": "false"})


def test_the_stream_is_required_and_an_arn_brings_its_region() -> None:
    with pytest.raises(ConfigError, match="streamName"):
        SourceOptions.parse({})
    arn = "arn:aws:kinesis:eu-north-1:123456789012:stream/orders"
    options = SourceOptions.parse({"streamArn": arn})
    assert options.connection.region_name == "eu-north-1"
    assert [str(stream) for stream in options.streams] == [arn]
    assert (
        SourceOptions.parse({"streamArn": arn, "region": "us-east-1"}).connection.region_name == "us-east-1"
    )
    with pytest.raises(ConfigError, match="streamName"):
        SourceOptions.parse({"streamArn": arn, "streamName": "others"})


def test_secrets_do_not_show() -> None:
    options = SourceOptions.parse(
        {**NAME, "accessKeyId": "A", "secretAccessKey": "hush", "sessionToken": "quiet"}
    )
    assert "hush" not in repr(options)
    assert "quiet" not in repr(options)
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({**NAME, "secretAccessKey": "hush"})
    assert "hush" not in str(caught.value)


def test_writer_options() -> None:
    options = SinkOptions.parse(
        {
            **NAME,
            "aggregation": "false",
            "compression": "ZSTD",
            "maxOutstandingBytes": "1000000",
            "flushTimeout": "30s",
            "requestTimeout": "20s",
            "maxConnections": "3",
            "errorSample": "0",
            "partitionKey": "random",
            "recordMaxBufferedTime": "20ms",
            "rateLimit": "100",
            "missingStream": "Wait",
            "checkpointLocation": "somewhere",
            "queryName": "q",
        }
    )
    config = options.settings.config
    assert not config.aggregation_enabled
    assert (config.compression, SinkOptions.parse(NAME).settings.config.compression) == ("zstd", None)
    assert config.max_buffered_bytes == 1_000_000
    assert config.record_ttl == options.flush_timeout == 30.0
    assert (config.max_connections, config.record_max_buffered_time, config.rate_limit) == (3, 0.02, 100)
    assert config.missing_stream == "wait"
    assert config.request_timeout == 20.0
    assert options.random_partition_key
    assert options.error_sample == 0
    assert options.first_attempts
    assert not SinkOptions.parse({**NAME, "firstAttempts": "Never"}).first_attempts
    with pytest.raises(ConfigError, match="none, zstd"):
        SinkOptions.parse({**NAME, "compression": "gzip"})
    with pytest.raises(ConfigError, match="maxConnections"):
        SinkOptions.parse({**NAME, "maxConnection": "3"})
    with pytest.raises(ConfigError, match="checkpointLocation"):
        SourceOptions.parse({**NAME, "checkpointLocation": "of a sink only"})


def test_whose_names_the_rows_have() -> None:
    names = {"idempotent": "true", "dedupNamespace": "orders"}
    config = SinkOptions.parse({**NAME, **names, "dedupSecret": "ä" * 8}).settings.config
    assert (config.dedup_namespace, config.dedup_secret) == ("orders", b"\xc3\xa4" * 8)
    for more in (
        {"dedupNamespace": "n"},
        {**names, "idempotent": "false"},
        {**names, "dedupNamespace": "n" * 129},
    ):
        with pytest.raises(ConfigError, match=r"^dedupNamespace="):
            SinkOptions.parse({**NAME, "idempotent": "false", **more})
    with pytest.raises(ConfigError, match="dedupNamespace"):
        SinkOptions.parse({**NAME, "dedupSecret": "s" * 16})
    assert SinkOptions.parse({**NAME, **names, "Reconcile": "6h"}).reconcile == 21_600
    with pytest.raises(ConfigError, match="reconcile='21600s'"):
        SinkOptions.parse({**NAME, "Reconcile": "6h"})
    for value in ("hush" * 3, "hush" * 17):
        with pytest.raises(ConfigError, match="dedupSecret") as caught:
            SinkOptions.parse({**NAME, **names, "dedupSecret": value})
        assert "hush" not in str(caught.value)


def test_several_streams() -> None:
    arns = [f"arn:aws:kinesis:eu-north-1:12345678901{n}:stream/s{n}" for n in range(2)]
    options = SourceOptions.parse({"streamNames": f" orders, {arns[0]} ,{arns[1]}"})
    assert options.streams == (StreamId("orders"), StreamId("s0", arns[0]), StreamId("s1", arns[1]))
    assert options.connection.region_name == "eu-north-1"
    assert pickle.loads(pickle.dumps(options)) == options
    assert SourceOptions.parse({"streamnames": "orders"}) == SourceOptions.parse(NAME)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"streamNames": "a,,b"}, "streamNames"),
        ({"streamNames": "a b"}, "streamNames"),
        ({"streamNames": ","}, "streamNames"),
        ({"streamNames": ""}, "streamNames"),
        ({"streamNames": "a,b,a"}, "streamNames.*different names: a occurs"),
        ({"streamNames": "a,arn:aws:kinesis:us-east-1:123456789012:stream/a"}, "different names: a occurs"),
        (
            {
                "streamNames": "arn:aws:kinesis:us-east-1:123456789012:stream/a,"
                "arn:aws:kinesis:us-east-2:123456789012:stream/b"
            },
            "ARNs of streams in one region",
        ),
        ({"streamNames": "a,b", "streamName": "a"}, "streamName=.*nothing"),
        ({"streamNames": "a,b", "streamArn": "arn:aws:kinesis:us-east-1:123456789012:stream/a"}, "streamArn"),
    ],
)
def test_streams_that_do_not_fit_together(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions.parse(values)


def test_a_writer_has_one_stream() -> None:
    with pytest.raises(ConfigError, match="streamNames"):
        SinkOptions.parse({"streamNames": "a,b"})


def test_positions() -> None:
    assert StartingPosition.parse("latest").resolve("x", 77) == AtTimestamp(77)
    assert StartingPosition.parse("TRIM_HORIZON").resolve("x", 77) == TrimHorizon()
    a, b, c = (f"shardId-00000000000{n}" for n in range(3))
    text = json.dumps({"default": "TRIM_HORIZON", b: "AT_TIMESTAMP 2026-01-31T12:00:00Z", a: "LATEST"})
    parsed = StartingPosition.parse(text)
    assert parsed.resolve(a, 1) == AtTimestamp(1)
    assert parsed.resolve(b, 1) == AtTimestamp(1769860800000)
    assert parsed.resolve(c, 1) == TrimHorizon()
    assert StartingPosition.parse(f'{{"{a}": "AFTER_SEQUENCE_NUMBER 12"}}').resolve(a, 1) == AfterSequence(
        "12"
    )
    assert StartingPosition.parse(f'{{"{a}": "TRIM_HORIZON"}}').of(b) == Latest()
    at = StartingPosition.parse(f'{{"{a}": "at:12", "{b}": "at:12/0"}}')
    assert at.resolve(a, 1) == at.resolve(b, 1) == AtSequence("12")
    assert StartingPosition.parse(str(at)) == at


def test_times_relative_to_now() -> None:
    clock = VirtualClock()
    options = SourceOptions.parse({**NAME, "startingPosition": "-1h", "endingPosition": "-15m"}, clock=clock)
    now = round(clock.time() * 1000)
    assert options.starting_position == StartingPosition(AtTimestamp(now - 3_600_000))
    assert options.ending_position == AtTimestamp(now - 900_000)
    with pytest.raises(ConfigError, match="relative to now"):
        StartingPosition.parse("-1h")


SHARD = "shardId-000000000001"


def test_positions_of_several_streams() -> None:
    text = json.dumps(
        {
            "orders": "TRIM_HORIZON",
            "flights": {
                SHARD: "AFTER_SEQUENCE_NUMBER 12",
                "shard-odd": "LATEST",
                "default": "AT_TIMESTAMP 5",
            },
            "rest": {SHARD: "LATEST"},
            "default": "AT_TIMESTAMP 9",
        }
    )
    names = ["orders", "flights", "rest", "new"]
    parsed = SourceOptions.parse({"streamNames": ",".join(names), "startingPosition": text}).starting_position
    assert parsed is not None
    assert parsed == StartingPosition.parse(text)
    assert parsed.for_stream("orders") == StartingPosition(TrimHorizon())
    flights = parsed.for_stream("flights")
    assert flights.resolve(SHARD, 1) == AfterSequence("12")
    assert flights.resolve("shard-odd", 1) == AtTimestamp(1)
    assert flights.resolve("x", 1) == AtTimestamp(5)
    assert parsed.for_stream("rest") == StartingPosition(AtTimestamp(9), {SHARD: Latest()})
    assert parsed.for_stream("new") == StartingPosition(AtTimestamp(9))
    assert str(parsed) == (
        '{"default":"AT_TIMESTAMP 9","flights":{"default":"AT_TIMESTAMP 5","shard-odd":"LATEST",'
        f'"{SHARD}":"AFTER_SEQUENCE_NUMBER 12"}},"orders":"TRIM_HORIZON","rest":{{"default":"AT_TIMESTAMP 9",'
        f'"{SHARD}":"LATEST"}}}}'
    )


def test_positions_of_shards_belong_to_the_only_stream() -> None:
    """The shards of a stream that the query reads later have the same ids."""
    text = json.dumps({"default": "TRIM_HORIZON", SHARD: "AFTER_SEQUENCE_NUMBER 12"})
    parsed = SourceOptions.parse({**NAME, "startingPosition": text}).starting_position
    assert parsed is not None
    assert parsed.for_stream("orders").resolve(SHARD, 1) == AfterSequence("12")
    assert parsed.for_stream("flights").resolve(SHARD, 1) == TrimHorizon()
    assert StartingPosition.parse(str(parsed)) == parsed
    nested = json.dumps({"default": "TRIM_HORIZON", "orders": {SHARD: "AFTER_SEQUENCE_NUMBER 12"}})
    assert SourceOptions.parse({**NAME, "startingPosition": nested}).starting_position == parsed
    unknown = StartingPosition.parse(text)
    assert unknown.for_stream("orders").resolve(SHARD, 1) == AfterSequence("12")


def test_a_stream_whose_name_begins_like_a_shard_id_needs_an_object() -> None:
    text = '{"shardId-x": {"default": "TRIM_HORIZON"}}'
    parsed = StartingPosition.parse(text, streams=["shardId-x", "b"])
    assert parsed.for_stream("shardId-x") == StartingPosition(TrimHorizon())
    assert StartingPosition.parse(str(parsed), streams=["shardId-x", "b"]) == parsed


@pytest.mark.parametrize(
    ("names", "value", "message"),
    [
        ("a,b", {"a": "LATEST", SHARD: "LATEST"}, 'not both: a is a stream name.*<stream name>": ..shardId-'),
        ("a", {"a": "LATEST", SHARD: "LATEST"}, "either stream names or shard ids"),
        ("a,b", {SHARD: "LATEST"}, f'several streams: {{"a": {{"{SHARD}"'),
        ("a,b", {"c": "LATEST"}, r"startingPosition\[c\].*that the query reads .a, b."),
        ("a", {"c": "LATEST"}, r"startingPosition\[c\].*that the query reads .a."),
        ("a", {"c": {"default": "LATEST"}}, r"startingPosition\[c\]"),
        ("a", {"not a name": "LATEST"}, "not a name"),
        ("a", {"arn:aws:kinesis:us-east-1:123456789012:stream/a": "LATEST"}, "stream names"),
        ("a", {"a": "AFTER_SEQUENCE_NUMBER 5"}, r"startingPosition\[a\].*belongs to one shard"),
        ("a", {"a": {"default": "AFTER_SEQUENCE_NUMBER 5"}}, r"\[a\]\[default\].*belongs to one shard"),
        ("a", {"a": {SHARD: "SOON"}}, rf"startingPosition\[a\]\[{SHARD}\]"),
        ("a", {"a": {SHARD: {"default": "LATEST"}}}, rf"startingPosition\[a\]\[{SHARD}\]"),
        ("a", {"a": None}, r"startingPosition\[a\]"),
        ("a", {"default": {"default": "LATEST"}}, r"startingPosition\[default\]"),
    ],
)
def test_positions_that_do_not_fit_the_streams(names: str, value: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions.parse({"streamNames": names, "startingPosition": json.dumps(value)})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "AT_TIMESTAMP",
            "AT_TIMESTAMP soon",
            "AFTER_SEQUENCE_NUMBER 5",
            "LATEST 5",
            "{",
            "[]",
            '{"a": 5}',
            '{"shardId-1": 5}',
            "{" + '"a":{' * 100_000,
        ),
        *('{"default": "after:5"}', '{"default": "at:5"}', '{"shardId-1": "at:5/2"}', "15m", "1769860800000"),
        *('{"default": "AFTER_SEQUENCE_NUMBER 5"}', '{"shardId-1": "AFTER_SEQUENCE_NUMBER x"}'),
        *("AT_TIMESTAMP 253402300800000", "AT_TIMESTAMP " + "9" * 5000, "AT_TIMESTAMP 1969-12-31T23:59:59Z"),
    ],
)
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ConfigError):
        StartingPosition.parse(text)


SPECS = st.one_of(
    st.sampled_from(["LATEST", "TRIM_HORIZON"]), st.integers(0, 2**45).map(lambda n: f"AT_TIMESTAMP {n}")
)


SHARDS = st.dictionaries(st.integers(0, 9).map(lambda n: f"shardId-{n}"), SPECS, max_size=4)
STREAM_POSITIONS = st.dictionaries(
    st.text("abc", min_size=1),
    SPECS | st.tuples(SPECS, SHARDS).map(lambda t: {"default": t[0], **t[1]}),
    max_size=4,
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(SPECS, SHARDS | STREAM_POSITIONS, st.none() | st.just("only"))
def test_the_text_of_a_position_is_canonical(
    default: str, positions: dict[str, Any], only: str | None
) -> None:
    of_shards = any(name.startswith("shardId-") for name in positions)
    streams = None if only is None else [only] if of_shards or not positions else list(positions)
    parsed = StartingPosition.parse(json.dumps({"default": default, **positions}), streams=streams)
    again = StartingPosition.parse(str(parsed))
    assert again == parsed
    assert str(again) == str(parsed)
    if of_shards:
        found = parsed.for_stream("only")
        assert {name: str(found.of(name)) for name in positions} == positions
    else:
        for name, value in positions.items():
            found = parsed.for_stream(name)
            expected = value if isinstance(value, dict) else {"default": value}
            assert {shard_id: str(found.of(shard_id)) for shard_id in expected} == expected


@pytest.mark.parametrize("parse", [SourceOptions.parse, SinkOptions.parse])
def test_a_path_is_told_of_the_option_for_the_stream(parse: Any) -> None:
    """As in ``load("orders")``, which other sources take."""
    with pytest.raises(ConfigError, match=r"path.*'orders'.*streamName"):
        parse({"path": "orders"})
