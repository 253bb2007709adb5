from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.multilang.protocol import (
    CheckpointAnswer,
    CheckpointRequest,
    ChildMessage,
    DaemonMessage,
    Initialize,
    LeaseLost,
    MessageRecord,
    Noise,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
    Status,
    decode_child_line,
    decode_daemon_line,
    encode,
    encode_records,
)

ARRIVED = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=timezone.utc)
NUMBER = "49574408222142592692188662052710866966"

TO_CHILD: list[tuple[DaemonMessage, str]] = [
    (
        Initialize("shardId-000000000007", "TRIM_HORIZON", 0),
        '{"action":"initialize","shardId":"shardId-000000000007","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}',
    ),
    (
        Initialize("shardId-000000000007", None, None),
        '{"action":"initialize","shardId":"shardId-000000000007","sequenceNumber":null,"subSequenceNumber":null}',
    ),
    (
        ProcessRecords((MessageRecord("aGk=", "k", NUMBER, 0, 1700000000123),), 1234),
        '{"action":"processRecords","records":[{"data":"aGk=","partitionKey":"k","sequenceNumber":"'
        + NUMBER
        + '",'
        '"approximateArrivalTimestamp":1700000000123,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":1234}',
    ),
    (ProcessRecords((), None), '{"action":"processRecords","records":[],"millisBehindLatest":null}'),
    (LeaseLost(), '{"action":"leaseLost"}'),
    (ShardEnded(), '{"action":"shardEnded"}'),
    (ShutdownRequested(), '{"action":"shutdownRequested"}'),
    (
        CheckpointAnswer(NUMBER, 3),
        '{"action":"checkpoint","sequenceNumber":"' + NUMBER + '","subSequenceNumber":3,"error":null}',
    ),
    (
        CheckpointAnswer(None, None, "ThrottlingException"),
        '{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":"ThrottlingException"}',
    ),
]


@pytest.mark.parametrize(("message", "text"), TO_CHILD)
def test_messages_to_the_child_are_those_of_the_java_daemon(message: DaemonMessage, text: str) -> None:
    assert encode(message) == text.encode() + b"\n"
    assert decode_daemon_line(text) == message


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Status("processRecords"), '{"action":"status","responseFor":"processRecords"}'),
        (
            CheckpointRequest(NUMBER, 3),
            '{"action":"checkpoint","sequenceNumber":"' + NUMBER + '","subSequenceNumber":3}',
        ),
        (CheckpointRequest(), '{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}'),
    ],
)
def test_messages_of_the_child(message: ChildMessage, text: str) -> None:
    assert encode(message) == text.encode() + b"\n"
    assert decode_child_line(text.encode()) == message


def records_of(line: bytes) -> list[dict[str, object]]:
    message = json.loads(line)
    assert list(message) == ["action", "records", "millisBehindLatest"]
    return message["records"]  # type: ignore[no-any-return]


def test_user_records_are_encoded_with_every_byte_and_character() -> None:
    data = bytes(range(256))
    records = [
        UserRecord(data, 'kö€😀"\\\n', NUMBER, ARRIVED),
        UserRecord(b"", "", "7", None, sub_sequence_number=11),
    ]
    pieces = list(encode_records(records, 0))
    line = b"".join(pieces)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.isascii()
    assert records_of(line) == [
        {
            "data": base64.b64encode(data).decode(),
            "partitionKey": 'kö€😀"\\\n',
            "sequenceNumber": NUMBER,
            "approximateArrivalTimestamp": 1700000000123,
            "subSequenceNumber": 0,
            "action": "record",
        },
        {
            "data": "",
            "partitionKey": "",
            "sequenceNumber": "7",
            "approximateArrivalTimestamp": 0,  # a child of amazon_kclpy fails at null
            "subSequenceNumber": 11,
            "action": "record",
        },
    ]


def test_a_large_batch_is_encoded_in_small_pieces() -> None:
    records = [UserRecord(b"x" * 1000, "k", str(number), ARRIVED) for number in range(5000)]
    pieces = list(encode_records(iter(records), 5))
    assert len(pieces) > 40
    assert max(map(len, pieces)) < 128 * 1024 + 2000
    assert [each["sequenceNumber"] for each in records_of(b"".join(pieces))] == list(map(str, range(5000)))


def test_random_records_survive_both_directions() -> None:
    rng = Random(1)
    records = [
        UserRecord(
            rng.randbytes(rng.randrange(40)),
            "".join(chr(rng.choice([34, 92, 10, 65, 233, 0x20AC, 0x1F600])) for _ in range(rng.randrange(6))),
            str(rng.randrange(10**56)),
            ARRIVED + timedelta(milliseconds=rng.randrange(10**9)),
            sub_sequence_number=rng.randrange(100),
        )
        for _ in range(300)
    ]
    message = decode_daemon_line(b"".join(encode_records(records, 9)))
    assert isinstance(message, ProcessRecords)
    assert encode(message) == b"".join(encode_records(records, 9))
    for record, found in zip(records, message.records, strict=True):
        assert found.payload == record.data
        assert found.partition_key == record.partition_key
        assert found.sub_sequence_number == record.sub_sequence_number
        assert found.approximate_arrival_timestamp is not None
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(
            milliseconds=found.approximate_arrival_timestamp
        )
        assert moment == record.approximate_arrival_timestamp


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'\n{"action": "status", "responseFor": "initialize"}\n', Status("initialize")),
        (b'  {"action":"status","responseFor":"initialize"} and text', Status("initialize")),
        (b'{"action":"status","responseFor":"initialize","extra":{"a":[1]}}', Status("initialize")),
        (b'{"action":"status"}', Status(None)),
        (b'{"action":"status","responseFor":7}', Status(None)),
        (b'{"action":"checkpoint"}', CheckpointRequest()),
        (b'{"action":"checkpoint","checkpoint":"4","sequenceNumber":"5"}', CheckpointRequest("5")),
        (
            b'{"action":"checkpoint","error":null,"sequenceNumber":"5"}',
            CheckpointRequest("5"),
        ),  # the .NET library
        (b'{"action":"checkpoint","sequenceNumber":55,"subSequenceNumber":"7"}', CheckpointRequest("55", 7)),
        (b'{"action":"checkpoint","sequenceNumber":"5","subSequenceNumber":7.0}', CheckpointRequest("5", 7)),
        (b'{"action":"checkpoint","sequenceNumber":"5","subSequenceNumber":""}', CheckpointRequest("5")),
        (
            b'{"action":"checkpoint","sequenceNumber":[]}',
            CheckpointRequest(problem="sequenceNumber is neither text nor a number"),
        ),
        (
            b'{"action":"checkpoint","sequenceNumber":"5","subSequenceNumber":"x"}',
            CheckpointRequest("5", problem="subSequenceNumber is not a number"),
        ),
        (
            b'{"action":"checkpoint","sequenceNumber":"5","subSequenceNumber":true}',
            CheckpointRequest("5", problem="subSequenceNumber is not a number"),
        ),
        (
            b'{"action":"checkpoint","sequenceNumber":"5","subSequenceNumber":1.5}',
            CheckpointRequest("5", problem="subSequenceNumber is not a number"),
        ),
        (b"\n", None),
        (b" \t\r\n", None),
    ],
)
def test_the_childs_lines_are_read_leniently(line: bytes, message: ChildMessage | None) -> None:
    assert decode_child_line(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"12",
        b'"x"',
        b"[]",
        b"{}",
        b"true",
        b"null",
        b"{",
        b'{"action":"sta',
        b"\xff\xfe{",
        b'x{"action":"status","responseFor":"initialize"}',
        b'{"Action":"status","responseFor":"initialize"}',
        b'{"action":"Status","responseFor":"initialize"}',
        b'{"action":"log","x":1}',
        b'{"action":"initialize","shardId":"x"}',
        b'{"action":"leaseLost"}',
        b'{"action":["status"]}',
        b'{"a":' * 100_000,
        b'{"action":"checkpoint","sequenceNumber":' + b"9" * 10_000 + b"}",
    ],
)
def test_other_lines_of_a_child_are_noise(line: bytes) -> None:
    found = decode_child_line(line)
    assert isinstance(found, Noise)
    assert len(found.text) <= 200
    assert found.text == line.decode("utf-8", "replace")[:200]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "not a message"),
        ("[]", "not an object"),
        ('{"action":"shutdown","reason":"TERMINATE"}', "unknown action 'shutdown'"),
        ('{"action":"initialize","shardId":"s","sequenceNumber":null}', "subSequenceNumber of initialize"),
        ('{"action":"processRecords","records":[]}', "millisBehindLatest of processRecords"),
        ('{"action":"processRecords","records":[1],"millisBehindLatest":1}', "not an object"),
        ('{"action":"processRecords","records":[{"data":1}],"millisBehindLatest":1}', "wrong data: int"),
        ('{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":true,"error":null}', "bool"),
        (b"\xff", "not a message"),
    ],
)
def test_a_child_rejects_lines_that_are_no_message(line: str | bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        decode_daemon_line(line)


def test_a_record_shows_no_payload() -> None:
    assert "aGk" not in repr(ProcessRecords((MessageRecord("aGk=", "k", "1"),), 0))
