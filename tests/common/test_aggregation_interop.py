"""In one process with other readers and writers of the format, and with other copies of its schema."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import AggRecord
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from hypothesis import given, settings
from hypothesis import strategies as st

import kinesis_sdk
from kinesis_sdk.common.aggregate_reader import decode
from tests import HANG, fuzz

from .reference import Item, filled

KEYS = st.one_of(st.sampled_from(["a", "b", "schlüssel", "🔑"]), st.text("xyz", min_size=1, max_size=200))
ROWS = st.lists(st.tuples(KEYS, st.binary(max_size=200)), min_size=2, max_size=20)


def peer_reads(blob: bytes) -> list[dict[str, Any]]:
    record = {
        "SequenceNumber": "7",
        "PartitionKey": "a",
        "ApproximateArrivalTimestamp": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "Data": blob,
    }
    return [user["kinesis"] for user in iter_deaggregate_records([record], data_format="Boto3")]


def peer_writes(items: list[Item]) -> bytes:
    record = AggRecord()
    for key, explicit, data in items:
        assert record.add_user_record(key, data, explicit)
    blob: bytes = record.get_contents()[2]
    return blob


# The peer gives a user record without an explicit hash key that of table entry 0, if there is a table: so
# either all user records have one here, or none has.
@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(ROWS, st.booleans())
def test_aws_kinesis_agg_reads_ours_and_ours_reads_its(rows: list[tuple[str, bytes]], explicit: bool) -> None:
    import base64

    items: list[Item] = [
        (key, str(index % 3) if explicit else None, data) for index, (key, data) in enumerate(rows)
    ]
    ours = filled(items).encode()
    read = peer_reads(ours)
    assert [
        (user["partitionKey"], user["explicitHashKey"], base64.b64decode(user["data"])) for user in read
    ] == items
    assert [user["subSequenceNumber"] for user in read] == list(range(len(items)))
    theirs = peer_writes(items)
    assert decode(theirs) == items
    assert theirs == ours


OURS = """
from kinesis_sdk.common.aggregate_reader import Aggregate, decode
aggregate = Aggregate(10_000, 100)
for key in "ab":
    assert aggregate.try_append(key, None, key.encode(), bytes(16))
assert decode(aggregate.encode()) == [("a", None, b"a"), ("b", None, b"b")]
"""
THEIRS = """
from aws_kinesis_agg.aggregator import AggRecord
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
record = AggRecord()
record.add_user_record("k", b"1")
assert len(record.get_contents()[2]) > 20
"""
# Another package's generated module: the same file and message names in the default pool, other fields, and
# a file under the very name that ours has in its own pool.
CLASH = """
from google.protobuf import descriptor_pb2, descriptor_pool
for name, package in [("messages.proto", "aws.kinesis.protobuf"),
                      ("kinesis_sdk/aggregation.proto", "kinesis_sdk.aggregation")]:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto2")
    for message in ("AggregatedRecord", "Record"):
        file.message_type.add(name=message).field.add(name="other", number=1, type=5, label=2)
    descriptor_pool.Default().Add(file)
    descriptor_pool.Default().FindMessageTypeByName(package + ".AggregatedRecord")
"""


@pytest.mark.parametrize(
    "script",
    [OURS + THEIRS + OURS, THEIRS + OURS + THEIRS, CLASH + OURS, OURS + CLASH + OURS],
    ids=["ours first", "aws_kinesis_agg first", "clash first", "clash later"],
)
def test_schemas_of_other_packages_in_one_process(script: str) -> None:
    run(script)


def test_the_pure_python_protobuf_runtime_reads_the_same() -> None:
    """Some clusters have protobuf without its C part."""
    run(
        """
        from google.protobuf.internal import api_implementation
        assert api_implementation.Type() == "python"
        """,
        OURS,
        """
        from hashlib import md5
        def seal(text):
            body = bytes.fromhex(text)
            return bytes.fromhex("f3899ac2") + body + md5(body).digest()
        from kinesis_sdk.common import aggregate_reader
        assert aggregate_reader._columns(bytes.fromhex("0a0161" "1a0508001a0178")) is None, "quadratic there"
        assert decode(seal("0a0161" "1a0508001a0178")) == [("a", None, b"x")]
        assert decode(seal("0a0161" "1a020800")) is None
        assert decode(seal("0a0161" "1a031a0178")) is None
        assert decode(seal("0a0161" "1a0508")) is None
        assert decode(seal("0a0161" "1a0408001a00")) == [("a", None, b"")]
        assert decode(seal("0a0161" "1a0508091a0178")) == [(None, None, b"x")]
        assert decode(seal("0a01ff" "120135" "1a07080010001a0178")) == [("\\ufffd", "5", b"x")]
        """,
        PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python",
    )


def run(*scripts: str, **environment: str) -> None:
    source = "".join(textwrap.dedent(script) for script in scripts)
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=Path(kinesis_sdk.__file__).parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
